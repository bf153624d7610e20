/** Values and texts as they were received, in a box that scrolls. They are never interpreted as markup. */

import { html } from "./html.js";

export function Source({ label, text, isError = false }) {
  return html`<section class="source">
    <h4>${label}</h4>
    <pre class=${isError ? "is-error" : ""} tabindex="0">${text}</pre>
  </section>`;
}

export function pretty(value) {
  return JSON.stringify(value, null, 2);
}

/** A text that is JSON is easier to read on several lines; any other is left as it is. */
export function prettyText(text) {
  if (!/^\s*[[{]/.test(text)) return text;
  try {
    return pretty(JSON.parse(text));
  } catch {
    return text; // it only began like JSON
  }
}
