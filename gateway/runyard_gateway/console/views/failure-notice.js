/** A failure in full: what happened, its code, and the request's id for the gateway's operator. */

import { html } from "./html.js";
import { Icon } from "./icons.js";

/** What to do, where the gateway's words do not say it. */
const ADVICE = Object.freeze({
  AGENT_INPUT_QUEUE_FULL: "Your text is back below. Send it when the agent has read what waits, or take something back.",
  ALREADY_FOLDED: "It cannot be taken back: the agent reads it with its next answer.",
  RUN_BUSY: "Somebody else began a turn meanwhile. Your text is back below: send it again to add it to that turn.",
  STORE_UNAVAILABLE: "Try again in a moment.",
});

/** @param {{failure: Failure, onRetry?: () => void, onDismiss?: () => void}} props */
export function FailureNotice({ failure, onRetry, onDismiss }) {
  return html`<div class="failure" role="alert">
    <${Icon} name="alert" />
    <div>
      <code>${failure.code}</code>
      <p>${failure.message}</p>
      ${ADVICE[failure.code] && html`<p class="advice">${ADVICE[failure.code]}</p>`}
      ${failure.requestId && html`<p class="request">Request ${failure.requestId}</p>`}
    </div>
    <div class="actions">
      ${onRetry && html`<button type="button" class="plain" onClick=${onRetry}>Try again</button>`}
      ${onDismiss &&
      html`<button type="button" class="quiet" aria-label="Dismiss" onClick=${onDismiss}>
        <${Icon} name="cross" />
      </button>`}
    </div>
  </div>`;
}
