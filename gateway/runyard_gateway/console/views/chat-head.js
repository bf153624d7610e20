/** The head of a conversation: which agent, what about, which run, what it has used. */

import { functionOf } from "../conversation/functions.js";
import { standingOf } from "../conversation/standing.js";
import { isBusy, STATUS_WORDS } from "../state/status.js";
import { CopyButton } from "./copy-button.js";
import { html } from "./html.js";
import { Icon } from "./icons.js";
import { costWords, plural } from "./words.js";

export function ChatHead({ page, state, words }) {
  const { runId, agent, run, live } = state;
  const status = standingOf(state) ?? run?.status;
  return html`<header class="head">
    <button
      type="button"
      class="quiet only-narrow"
      aria-label="Your runs"
      aria-controls="sidebar"
      onClick=${() => page.setMenu(true)}
    >
      <${Icon} name="menu" />
    </button>
    <div class="about">
      <h1>${words ?? (runId === null ? "New chat" : "Run")}</h1>
      ${runId !== null && html`<p>
        ${agent !== null && html`<span class="agent">${functionOf(agent) === null ? agent : `Function ${functionOf(agent)}`}</span>`}
        <span class="run"><code>${runId}</code> <${CopyButton} label="Copy the run's id" text=${runId} /></span>
        ${run &&
        functionOf(agent) === null &&
        !isBusy(run) &&
        !live &&
        html`<span class="total">${plural(run.steps, "step")}, ${costWords(run.cost)}</span>`}
      </p>`}
    </div>
    ${status && html`<span class="badge" data-status=${status}>${STATUS_WORDS[status] ?? status}</span>`}
  </header>`;
}
