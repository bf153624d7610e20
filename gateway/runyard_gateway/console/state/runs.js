/** The reader's runs, newest activity first, page by page, each with a title or its first words. */

import { argumentWords, functionOf, parsed } from "../conversation/functions.js";
import { asFailure } from "../wire/failure.js";
import { coalesced } from "./coalesced.js";
import { isBusy } from "./status.js";
import { Store } from "./store.js";

const PAGE_RUNS = 20;
const PAGE_RUNS_MAX = 100;

export class Runs {
  constructor(api) {
    this._api = api;
    this._firstWords = new Map();
    this._last = Promise.resolve();
    this.store = new Store({ items: null, nextCursor: null, failure: null });
    /** Reads all that is shown, anew. */
    this.refresh = coalesced(() => this._inTurn(() => this._refresh()));
  }

  more() {
    return this._inTurn(() => this._more());
  }

  get hasBusy() {
    return this.store.value.items?.some(isBusy) === true;
  }

  /** Each load goes on from what the one before has shown. */
  _inTurn(load) {
    this._last = this._last.then(load);
    return this._last;
  }

  _refresh() {
    const shown = this.store.value.items?.length ?? 0;
    const limit = Math.min(PAGE_RUNS_MAX, Math.max(PAGE_RUNS, shown));
    return this._load({ limit }, []);
  }

  async _more() {
    const { nextCursor, items } = this.store.value;
    if (nextCursor !== null) await this._load({ limit: PAGE_RUNS, cursor: nextCursor }, items);
  }

  async _load(query, before) {
    try {
      const { items, nextCursor } = await this._api.get("v1/runs", query);
      await Promise.all(items.map((run) => this._name(run)));
      const named = items.map((run) => ({ ...run, words: run.title ?? this._firstWords.get(run.id) }));
      this.store.set({ items: [...before, ...named], nextCursor, failure: null });
    } catch (error) {
      this.store.set({ failure: asFailure(error) });
    }
  }

  /** A run that was started without a title is known by the first words said in it. */
  async _name({ id, agent, title }) {
    if (title !== null || this._firstWords.has(id)) return;
    const path = `v1/runs/${encodeURIComponent(id)}`;
    const { items } = await this._api.get(`${path}/messages`, { limit: 1 });
    const waiting = items.length > 0 ? [] : (await this._api.get(path)).pendingInput; // no worker has begun it
    const words = items.length > 0 ? textOf(items[0].content) : waiting.map(({ text }) => text).join(" ");
    const said = functionOf(agent) === null ? words : argumentWords(parsed(words) ?? {}) || "No arguments";
    if (said.trim() !== "") this._firstWords.set(id, said.trim().slice(0, 120));
  }
}

function textOf(content) {
  if (typeof content === "string") return content;
  return content
    .filter((block) => block.type === "text")
    .map((block) => block.text)
    .join(" ");
}
