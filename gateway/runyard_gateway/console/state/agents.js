/** The agents that the reader may call. */

import { asFailure } from "../wire/failure.js";
import { Store } from "./store.js";

export class Agents {
  constructor(api) {
    this._api = api;
    this.store = new Store({ items: null, failure: null });
  }

  async refresh() {
    try {
      const { items } = await this._api.get("v1/agents");
      this.store.set({ items, failure: null });
    } catch (error) {
      this.store.set({ failure: asFailure(error) });
    }
  }

  /** Where a worker is missing, one may come any moment. */
  get areAwaited() {
    const { items, failure } = this.store.value;
    return failure !== null || items?.length === 0 || items?.some(({ liveWorkers }) => liveWorkers === 0) === true;
  }
}
