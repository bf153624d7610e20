/** The text field: Enter sends, Shift and Enter begin a new line, Escape twice stops the run. */

import { useEffect, useRef } from "../vendor/preact-hooks.mjs";
import { html } from "./html.js";
import { Icon } from "./icons.js";
import { StopButton, useStop } from "./stop-button.js";
import { useStore } from "./use-store.js";

const HINTS = Object.freeze({
  idle: "Enter sends, Shift + Enter begins a new line",
  atWork: "The agent reads what you send at its next step. Escape twice stops it.",
  armed: "Press Escape again to stop the agent",
  stopping: "The agent is stopping. It reads what you send when it has stopped.",
});

/**
 * @param {object} props
 * @param {import("../state/conversation.js").Conversation} props.conversation
 * @param {import("../state/requests.js").Requests} props.requests
 * @param {object} props.state
 * @param {() => void} props.onSend
 */
export function Composer({ conversation, requests, state, onSend }) {
  const { text } = useStore(conversation.draft.store);
  const field = useRef(null);
  const { phase, stop } = useStop(requests, state);
  useEffect(() => {
    if (matchMedia("(pointer: fine)").matches) field.current.focus(); // on a phone it would raise the keyboard
  }, [conversation]);

  const send = () => {
    conversation.draft.write(field.current.value); // the view may be a keystroke behind
    requests.send();
    onSend();
  };
  const onKey = (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    send();
  };
  const onSubmit = (event) => {
    event.preventDefault();
    send();
  };
  return html`<form class="composer" data-state=${phase} onSubmit=${onSubmit}>
    <label class="visually-hidden" for="draft">Message</label>
    <textarea
      id="draft"
      ref=${field}
      rows="1"
      placeholder=${placeholder(state)}
      aria-describedby="draft-hint"
      value=${text}
      onInput=${(event) => conversation.draft.write(event.currentTarget.value)}
      onKeyDown=${onKey}
    ></textarea>
    <div class="buttons">
      ${phase !== "idle" && html`<${StopButton} phase=${phase} onClick=${stop} />`}
      <button type="submit" class="primary send" aria-label="Send" disabled=${!requests.canSend || text.trim() === ""}>
        <${Icon} name="send" />
      </button>
    </div>
    <p id="draft-hint" class="hint">${HINTS[phase]}</p>
  </form>`;
}

function placeholder({ agent, live }) {
  if (live !== null) return "Add to it while it works";
  return agent === null ? "Message" : `Message ${agent}`;
}
