/** Where one writes: Enter sends, Shift and Enter begin a new line. */

import { useEffect, useRef, useState } from "../vendor/preact-hooks.mjs";
import { html } from "./html.js";
import { Icon } from "./icons.js";

const HINT_BUSY = "The agent is at work. You can send when it has ended.";
const HINT_KEYS = "Enter sends, Shift + Enter begins a new line";

export function Composer({ conversation, state, onSend }) {
  const [draft, setDraft] = useState("");
  const field = useRef(null);
  const { agent, runId, run, live, sending } = state;
  const isBusy = live !== null || sending !== null;
  const isReady = agent !== null && !isBusy && (runId === null || run !== null);
  useEffect(() => {
    if (matchMedia("(pointer: fine)").matches) field.current.focus(); // on a phone it would raise the keyboard
  }, [conversation]);

  const send = async () => {
    const input = field.current.value; // the view may be a keystroke behind
    if (!isReady || input.trim() === "") return;
    setDraft("");
    onSend();
    if (!(await conversation.send(input))) setDraft((since) => (since === "" ? input : `${input}\n\n${since}`));
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
  return html`<form class="composer" onSubmit=${onSubmit}>
    <label class="visually-hidden" for="draft">Message</label>
    <textarea
      id="draft"
      ref=${field}
      rows="1"
      placeholder=${agent === null ? "Message" : `Message ${agent}`}
      aria-describedby="draft-hint"
      value=${draft}
      onInput=${(event) => setDraft(event.currentTarget.value)}
      onKeyDown=${onKey}
    ></textarea>
    <button type="submit" class="primary send" aria-label="Send" disabled=${!isReady || draft.trim() === ""}>
      <${Icon} name="send" />
    </button>
    <p id="draft-hint" class="hint">${isBusy ? HINT_BUSY : HINT_KEYS}</p>
  </form>`;
}
