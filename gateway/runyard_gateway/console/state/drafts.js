/** Unsent text, by run: kept across reloads of this tab, until it is sent or the tab is closed. */

import { Store } from "./store.js";

const KEY = "runyard.draft.";

export class Draft {
  /** @param {string | null} runId null: of the conversation that begins */
  constructor(runId) {
    this._runId = runId;
    this.store = new Store({ text: sessionStorage.getItem(this._key) ?? "" });
  }

  get text() {
    return this.store.value.text;
  }

  write(text) {
    if (text === "") sessionStorage.removeItem(this._key);
    else sessionStorage.setItem(this._key, text);
    this.store.set({ text });
  }

  /** What comes back stands before what was written since. */
  giveBack(text) {
    this.write([text, this.text].filter((part) => part !== "").join("\n\n"));
  }

  /** The conversation has got its run. */
  moveTo(runId) {
    const { text } = this;
    this.write("");
    this._runId = runId;
    this.write(text);
  }

  get _key() {
    return `${KEY}${this._runId ?? ""}`;
  }
}

export function forgetDrafts() {
  for (const key of Object.keys(sessionStorage)) if (key.startsWith(KEY)) sessionStorage.removeItem(key);
}
