/** Stops what a conversation has in progress: a button, and Escape twice. */

import { standingOf } from "../conversation/standing.js";
import { useCallback } from "../vendor/preact-hooks.mjs";
import { html } from "./html.js";
import { Icon } from "./icons.js";
import { PassingButton } from "./passing-button.js";
import { useEscapeTwice } from "./use-escape.js";

/**
 * @param {import("../state/requests.js").Requests} requests
 * @param {object} state see `../state/conversation.js`
 * @returns {{phase: string, stop: () => void}} `phase`: "idle", "atWork", "armed" (the next Escape stops it), "stopping"
 */
export function useStop(requests, state) {
  const standing = standingOf(state);
  const isStopping = standing === "stopping";
  const stop = useCallback(() => requests.stop(), [requests]);
  const isArmed = useEscapeTwice(standing !== null && !isStopping, stop);
  const phase = isArmed ? "armed" : isStopping ? "stopping" : standing !== null ? "atWork" : "idle";
  return { phase, stop };
}

export function StopButton({ phase, onClick }) {
  const isStopping = phase === "stopping";
  return html`<${PassingButton} class="stop" aria-disabled=${isStopping} onClick=${onClick}>
    ${isStopping ? html`<span class="spinner"></span>` : html`<${Icon} name="stop" />`}
    <span class="words">${isStopping ? "Stopping" : "Stop"}</span>
  </${PassingButton}>`;
}
