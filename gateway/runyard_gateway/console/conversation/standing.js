/** The state of the followed invocation, from its rows and its stream, so that every viewer sees the same. */

import { isAhead } from "./waiting.js";

/**
 * @param {object} state see `../state/conversation.js`
 * @returns {string | null} "queued", "stopping", "between" (its worker left it, the next one has not taken it yet), the
 *   status that its stream told ("running", "retrying", ...) or that it ended with; null: none is followed
 */
export function standingOf(state) {
  const { run, live, frames, stopping } = state;
  if (live === null) return null;
  const { status, outcome } = frames[live.invocationId];
  if (outcome !== null) return outcome.status;
  const isOfRun = run?.invocationId === live.invocationId; // the run's row is no older than the invocation
  if (stopping === live.invocationId || (isOfRun && run.cancelRequested)) return "stopping";
  if (isOfRun && run.status === "queued" && !isAhead(state)) return "between";
  return status ?? "queued";
}
