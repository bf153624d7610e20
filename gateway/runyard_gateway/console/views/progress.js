/** How an invocation stands that goes on. */

import { html } from "./html.js";

const WITHDRAWN = "Unfinished output was withdrawn. The agent goes on from its last saved step.";

export function Progress({ frames, connection, hasWorkers, isWriting }) {
  return html`<div class="progress" data-state=${connection ? "lost" : (frames?.status ?? "queued")}>
    <span class="pulse"></span>
    <span role="status">${words({ frames, connection, hasWorkers, isWriting })}</span>
    ${frames?.rewinds > 0 && html`<span class="note">${WITHDRAWN}</span>`}
  </div>`;
}

function words({ frames, connection, hasWorkers, isWriting }) {
  if (connection) return `${connection.message} Connecting again. The run goes on meanwhile.`;
  if (frames?.status) return isWriting ? "Writing" : "Working";
  return hasWorkers ? "Queued" : "Queued. No worker that has this agent is alive: the run waits for one.";
}
