/** A button that goes away when it is used. If it had the focus, the text field gets it. */

import { useLayoutEffect, useRef } from "../vendor/preact-hooks.mjs";
import { html } from "./html.js";

/** @param {object} props those of a button */
export function PassingButton({ children, ...props }) {
  const button = useRef(null);
  useLayoutEffect(() => {
    const place = button.current;
    return () => {
      const isFine = matchMedia("(pointer: fine)").matches; // on a phone the focus would raise the keyboard
      if (isFine && document.activeElement === place) document.getElementById("draft")?.focus();
    };
  }, []);
  return html`<button type="button" ref=${button} ...${props}>${children}</button>`;
}
