/** Runs an action when Escape is pressed twice in a row; one press could be a mistake. */

import { useEffect, useRef, useState } from "../vendor/preact-hooks.mjs";

/** How long the first press counts. */
const ARMED_MS = 3_000;

/**
 * @param {boolean} isOn whether there is anything to do
 * @param {() => void} act
 * @returns {boolean} whether the next press does it
 */
export function useEscapeTwice(isOn, act) {
  const armed = useRef(null); // the timer that disarms it; keys may come faster than the view is drawn
  const [isArmed, tell] = useState(false);
  useEffect(() => {
    if (!isOn) return;
    const arm = (timer) => {
      clearTimeout(armed.current);
      armed.current = timer;
      tell(timer !== null);
    };
    const onKey = (event) => {
      if (event.isComposing || event.repeat || event.defaultPrevented) return; // it ends something else, or is held
      if (event.key !== "Escape") return arm(null);
      event.preventDefault();
      if (armed.current === null) return arm(setTimeout(arm, ARMED_MS, null));
      arm(null);
      act();
    };
    addEventListener("keydown", onKey);
    return () => {
      removeEventListener("keydown", onKey);
      arm(null);
    };
  }, [isOn, act]);
  return isArmed;
}
