/** Inputs that the agent has not read yet, each with its status and a button to take it back. */

import { standingOf } from "../conversation/standing.js";
import { inputsOf } from "../conversation/waiting.js";
import { html } from "./html.js";
import { Icon } from "./icons.js";
import { PassingButton } from "./passing-button.js";
import { plural } from "./words.js";

/**
 * @param {object} props
 * @param {import("../state/requests.js").Requests} props.requests
 * @param {object} props.state see `../state/conversation.js`
 */
export function Waiting({ requests, state }) {
  const { live, sending, takingBack } = state;
  const { waiting } = inputsOf(state);
  const isSending = sending !== null && live !== null;
  if (waiting.length === 0 && !isSending) return null;
  return html`<section class="waiting" aria-label="Not read yet" data-state=${live ? "queued" : "unanswered"}>
    <header>
      <${Icon} name=${live ? "wait" : "alert"} />
      <p>${live ? liveWords(waiting.length, standingOf(state)) : unansweredWords(waiting.length)}</p>
      ${!live &&
      html`<${PassingButton} class="plain" aria-disabled=${sending !== null} onClick=${() => requests.sendAgain()}>
        Send again
      </${PassingButton}>`}
    </header>
    <ul>
      ${waiting.map((input) => {
        const takeBack = input.receipt === "steered" ? null : () => requests.takeBack(input.id);
        return html`<${Chip} key=${input.id} ...${input} isLeaving=${takingBack !== null} onTakeBack=${takeBack} />`;
      })}
      ${isSending && html`<${Chip} key="sending" text=${sending} receipt="sending" />`}
    </ul>
  </section>`;
}

function Chip({ text, receipt, isLeaving, onTakeBack }) {
  return html`<li class="chip" data-receipt=${receipt}>
    <span class="said" title=${text}>${text.trim() === "" ? "(no text)" : text}</span>
    <span class="receipt">${receipt}</span>
    ${onTakeBack &&
    html`<${PassingButton}
      class="quiet"
      aria-label=${`Take back: ${text.slice(0, 80)}`}
      title="Take back"
      aria-disabled=${isLeaving}
      onClick=${onTakeBack}
    >
      <${Icon} name="back" />
    </${PassingButton}>`}
  </li>`;
}

function liveWords(count, standing) {
  if (count === 0) return "Sending";
  const inputs = plural(count, "input");
  return standing === "stopping" ? `${inputs} not read yet` : `${inputs} for the agent's next step`;
}

function unansweredWords(count) {
  return `${plural(count, "input")} not read. The agent reads ${count === 1 ? "it" : "them"} before what you send next.`;
}
