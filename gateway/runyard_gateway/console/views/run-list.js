/** The reader's runs. */

import { nameOf } from "../conversation/functions.js";
import { hrefOf } from "../state/address.js";
import { STATUS_WORDS } from "../state/status.js";
import { FailureNotice } from "./failure-notice.js";
import { html } from "./html.js";
import { useStore } from "./use-store.js";
import { momentWords, wholeMoment } from "./words.js";

export function RunList({ page }) {
  const { runs } = page;
  const { items, nextCursor, failure } = useStore(runs.store);
  const { conversation, needsToken } = useStore(page.store);
  const runId = useStore(conversation.store, (state) => state.runId);
  return html`<nav class="runs" aria-label="Your runs">
    ${failure && !needsToken && html`<${FailureNotice} failure=${failure} onRetry=${() => runs.refresh()} />`}
    ${items?.length === 0 && html`<p class="empty">Your runs appear here.</p>`}
    <ul>
      ${items?.map(
        (run) => html`<li key=${run.id}>
          <${RunLink} run=${run} page=${page} isCurrent=${run.id === runId} />
        </li>`,
      )}
    </ul>
    ${nextCursor && html`<button type="button" class="plain more" onClick=${() => runs.more()}>Show more</button>`}
  </nav>`;
}

function RunLink({ run, page, isCurrent }) {
  const show = (event) => {
    if (event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
    event.preventDefault();
    page.showRun(run.id);
  };
  return html`<a href=${hrefOf({ runId: run.id })} aria-current=${isCurrent ? "page" : null} onClick=${show}>
    <span class="words">${run.words ?? run.id}</span>
    <span class="facts">
      <span class="dot" data-status=${run.status}></span>
      <span class="agent">${nameOf(run.agent)}</span>
      <span class=${run.status === "completed" ? "visually-hidden" : "status"}>${STATUS_WORDS[run.status]}</span>
      <time datetime=${run.lastActivityAt} title=${wholeMoment(run.lastActivityAt)}>
        ${momentWords(run.lastActivityAt)}
      </time>
    </span>
  </a>`;
}
