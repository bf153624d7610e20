/** The line that shows the state of an invocation in progress, as long as it is in this state. */

import { html } from "./html.js";
import { durationWords } from "./words.js";

const WITHDRAWN = "Unfinished output was withdrawn. The agent goes on from its last saved step.";
const NO_WORKER = "No worker with this agent is alive: the run waits for one.";

const WAIT_REASONS = {
  no_worker: NO_WORKER,
  agent_limit: "The limit of runs at once is reached for this agent.",
  tenant_limit: "The limit of runs at once is reached for your organization.",
  user_limit: "The limit of runs at once is reached for you.",
};

/**
 * @param {object} props
 * @param {string} props.standing see `../conversation/standing.js`
 * @param {object} props.frames
 * @param {object | null} props.connection why the stream is broken off
 * @param {boolean} props.hasWorkers
 * @param {boolean} props.isWriting
 */
export function Progress({ standing, frames, connection, hasWorkers, isWriting }) {
  const words = connection
    ? `${connection.message} Connecting again. The run goes on meanwhile.`
    : standingWords({ standing, frames, hasWorkers, isWriting });
  return html`<div class="progress" data-state=${connection ? "lost" : standing}>
    <span class="pulse"></span>
    <div>
      <p>${words}</p>
      ${frames.isWithdrawn && html`<p class="note">${WITHDRAWN}</p>`}
    </div>
  </div>`;
}

function standingWords({ standing, frames, hasWorkers, isWriting }) {
  switch (standing) {
    case "queued":
      return queuedWords(frames, hasWorkers);
    case "between":
      return `Its worker has left. ${hasWorkers ? "Another one goes on with it." : NO_WORKER}`;
    case "stopping":
      return "Stopping. What the agent has said is kept.";
    case "retrying":
      return retryWords(frames.retry);
    case "running":
      return isWriting ? "Writing" : "Working";
    default:
      return standing; // as the stream told it
  }
}

function queuedWords({ position, waitReason }, hasWorkers) {
  if (!hasWorkers) return `Queued. ${NO_WORKER}`;
  const place = position === null ? "Queued" : `Queued, number ${position} in line`;
  const reason = WAIT_REASONS[waitReason];
  return reason ? `${place}. ${reason}` : place;
}

/** The first attempt is another model's: those before it have failed. */
function retryWords({ model, attempt, waitMs }) {
  const after = waitMs < 1_000 ? "" : ` in ${durationWords(waitMs)}`;
  if (attempt === 1) return `The model failed. Asking ${model} instead${after}.`;
  return `The model failed. Asking ${model} again${after} (attempt ${attempt}).`;
}
