/** The foot of a function's run, which takes no input: a button that stops its call, or a note that it has ended. */

import { html } from "./html.js";
import { StopButton, useStop } from "./stop-button.js";

const HINTS = Object.freeze({
  idle: "A function is one call: its run takes no messages.",
  atWork: "Escape twice stops it.",
  armed: "Press Escape again to stop it",
  stopping: "It is stopping.",
});

/**
 * @param {object} props
 * @param {import("../state/requests.js").Requests} props.requests
 * @param {object} props.state
 */
export function CallFoot({ requests, state }) {
  const { phase, stop } = useStop(requests, state);
  return html`<div class="call-foot" data-state=${phase}>
    ${phase !== "idle" && html`<${StopButton} phase=${phase} onClick=${stop} />`}
    <p class="hint">${HINTS[phase]}</p>
  </div>`;
}
