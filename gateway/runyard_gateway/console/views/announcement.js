/** The announcements for screen readers: the run's state and how much waits, but not each word of the answer. */

import { standingOf } from "../conversation/standing.js";
import { inputsOf } from "../conversation/waiting.js";
import { STATUS_WORDS } from "../state/status.js";
import { html } from "./html.js";
import { plural } from "./words.js";

/** @param {{state: object}} props see `../state/conversation.js` */
export function Announcement({ state }) {
  const { run, connection } = state;
  const standing = connection ? "Connecting again" : (standingOf(state) ?? run?.status);
  const waiting = inputsOf(state).waiting.filter(({ receipt }) => receipt !== "steered").length;
  const words = [STATUS_WORDS[standing] ?? standing, waiting > 0 && `${plural(waiting, "input")} not read yet`];
  return html`<p class="visually-hidden" role="status">${words.filter(Boolean).join(", ")}</p>`;
}
