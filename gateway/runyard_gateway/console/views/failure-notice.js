/** A failure, told in full: what happened, its code, the request's id for whoever runs the gateway. */

import { html } from "./html.js";
import { Icon } from "./icons.js";

/** @param {{failure: Failure, onRetry?: () => void, onDismiss?: () => void}} props */
export function FailureNotice({ failure, onRetry, onDismiss }) {
  return html`<div class="failure" role="alert">
    <${Icon} name="alert" />
    <div>
      <code>${failure.code}</code>
      <p>${failure.message}</p>
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
