/** The parts of a turn that are neither answer text nor tool calls: inputs, thinking, events, other blocks. */

import { useState } from "../vendor/preact-hooks.mjs";
import { html } from "./html.js";
import { Icon } from "./icons.js";
import { pretty, Source } from "./source.js";

export function Input({ text, isWaiting = false }) {
  return html`<div class=${isWaiting ? "input is-waiting" : "input"}>
    <span class="visually-hidden">You said:</span>
    <div class="said">${text}</div>
  </div>`;
}

/** Open while the model thinks, folded when it goes on, unless the reader wants it otherwise. */
export function Thinking({ text, isActive }) {
  const [chosen, choose] = useState(null);
  const isOpen = chosen ?? isActive;
  const toggle = (event) => {
    event.preventDefault();
    choose(!isOpen);
  };
  return html`<details class="thinking" open=${isOpen}>
    <summary onClick=${toggle}>
      <${Icon} name="thought" />
      <span>${isActive ? "Thinking" : "Thought"}</span>
      <span class="fold"><${Icon} name="chevron" /></span>
    </summary>
    <div class="said">${text}</div>
  </details>`;
}

export function Event({ name, data }) {
  return html`<div class="event">
    <span class="name">${name}</span>
    <code>${typeof data === "string" ? data : JSON.stringify(data)}</code>
  </div>`;
}

/** A block that this page has no picture of: as it is. */
export function OtherBlock({ block }) {
  return html`<details class="card other">
    <summary>
      <span class="name">${block.type}</span>
      <span class="fold"><${Icon} name="chevron" /></span>
    </summary>
    <div class="inside"><${Source} label="Block" text=${pretty(block)} /></div>
  </details>`;
}
