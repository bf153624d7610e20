/** How an invocation ended: its error or why it stopped, what it used, what it cost. */

import { STATUS_WORDS } from "../state/status.js";
import { CopyButton } from "./copy-button.js";
import { html } from "./html.js";
import { Icon } from "./icons.js";
import { costWords, plural, usageWords } from "./words.js";

/** Stop reasons of the Messages API that leave an answer other than complete. */
const CUT_SHORT = Object.freeze({
  max_tokens: "The output limit cut the answer.",
  refusal: "The model refused to go on.",
  model_context_window_exceeded: "The model's context window is full.",
  pause_turn: "The model paused its turn.",
});

/**
 * @param {object} props
 * @param {object} props.outcome `status, finishReason, steps, usage, cost, model`, `error` of a failed one
 * @param {string[]} props.answer the texts of the answer
 * @param {boolean} props.isFunction no model was asked
 */
export function Ending({ outcome, answer, isFunction }) {
  const { status, finishReason, steps, usage, cost, model, error } = outcome;
  const spent = isFunction ? [] : [plural(steps, "step"), usageWords(usage), costWords(cost), model];
  const facts = [STATUS_WORDS[status], ...spent];
  return html`<footer class="ending" data-status=${status}>
    ${error && html`<${RunError} error=${error} />`}
    ${CUT_SHORT[finishReason] && html`<p class="note">${CUT_SHORT[finishReason]}</p>`}
    <div class="facts">
      ${facts.filter(Boolean).map((fact) => html`<span>${fact}</span>`)}
      ${answer.length > 0 && html`<${CopyButton} label="Copy the answer" text=${answer.join("\n\n")} />`}
    </div>
  </footer>`;
}

function RunError({ error }) {
  return html`<div class="failure" role="alert">
    <${Icon} name="alert" />
    <div>
      <code>${error.code}</code>
      <p>${error.message}</p>
    </div>
  </div>`;
}
