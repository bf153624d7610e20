/** Copies a text as it was written, where the browser lets a page do that. */

import { useState } from "../vendor/preact-hooks.mjs";
import { html } from "./html.js";
import { Icon } from "./icons.js";

const TOLD_MS = 2_000;

export function CopyButton({ label, text }) {
  const [told, tell] = useState(null);
  if (navigator.clipboard === undefined) return null; // only over https, and on this machine
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text);
      tell("Copied");
    } catch {
      tell("The browser did not allow it");
    }
    setTimeout(() => tell(null), TOLD_MS);
  };
  return html`<button type="button" class="quiet copy" aria-label=${label} title=${label} onClick=${copy}>
    <${Icon} name=${told === null ? "copy" : "check"} />
    <span role="status">${told}</span>
  </button>`;
}
