/** What the page shows: the conversation that its address names, beside the reader's runs. */

import { Api } from "../wire/api.js";
import { asFailure } from "../wire/failure.js";
import { forgetToken, storedToken, storeToken } from "../wire/token.js";
import { becomes, goTo, readAddress } from "./address.js";
import { Agents } from "./agents.js";
import { Conversation } from "./conversation.js";
import { forgetDrafts } from "./drafts.js";
import { Requests } from "./requests.js";
import { Runs } from "./runs.js";
import { Store } from "./store.js";

/** How often is read what others change: the run that is shown, and lists where a run is busy or no agent is there. */
const LOOK_AGAIN_MS = 3_000;

export class Page {
  constructor() {
    this.api = new Api(storedToken, () => this.store.set({ needsToken: true }));
    this.agents = new Agents(this.api);
    this.runs = new Runs(this.api);
    this.store = new Store({
      conversation: null,
      requests: null,
      hasToken: storedToken() !== null,
      needsToken: false,
      isMenuOpen: false,
      isOnline: navigator.onLine,
      failure: null,
    });
  }

  /** From now on the page follows its address and the gateway. */
  start() {
    addEventListener("popstate", () => this._showAddress());
    addEventListener("error", (event) => this._fail(event.error ?? event.message));
    addEventListener("unhandledrejection", (event) => this._fail(event.reason));
    addEventListener("online", () => this._seenAgain());
    for (const name of ["online", "offline"]) addEventListener(name, () => this._setOnline());
    document.addEventListener("visibilitychange", () => this._seenAgain());
    setInterval(() => this._lookAgain(), LOOK_AGAIN_MS);
    this._refresh();
    this._showAddress();
  }

  showRun(runId) {
    goTo({ runId });
    this._showAddress();
  }

  newConversation(agent = null) {
    goTo({ agent });
    this._showAddress();
  }

  chooseAgent(agent) {
    becomes({ agent });
    this.store.value.conversation.choose(agent);
  }

  useToken(token) {
    storeToken(token);
    this._startAnew({ hasToken: true, needsToken: false });
  }

  forgetToken() {
    forgetToken();
    this._startAnew({ hasToken: false });
  }

  setMenu(isMenuOpen) {
    this.store.set({ isMenuOpen });
  }

  dismissFailure() {
    this.store.set({ failure: null });
  }

  /** Another reader: nothing of what the one before saw stays. */
  _startAnew(patch) {
    forgetDrafts();
    this.agents = new Agents(this.api);
    this.runs = new Runs(this.api);
    this.store.set(patch);
    this._refresh();
    this._showAddress();
  }

  _showAddress() {
    this.store.value.conversation?.close();
    const place = readAddress();
    const conversation = new Conversation(this.api, place, {
      onStarted: (runId) => becomes({ runId }),
      onChanged: () => this.runs.refresh(),
    });
    const requests = new Requests(this.api, conversation);
    this.store.set({ conversation, requests, isMenuOpen: false });
    if (place.runId !== null) conversation.open();
  }

  _refresh() {
    this.agents.refresh();
    this.runs.refresh();
  }

  _seenAgain() {
    if (document.hidden || this.store.value.needsToken) return;
    this._refresh();
    this.store.value.conversation.look();
  }

  _setOnline() {
    this.store.set({ isOnline: navigator.onLine });
  }

  _lookAgain() {
    if (document.hidden || this.store.value.needsToken) return;
    const { conversation } = this.store.value;
    const isQueued = conversation.store.value.run?.status === "queued"; // is there a worker for it?
    if (this.agents.areAwaited || isQueued) this.agents.refresh();
    if (this.runs.hasBusy || this.runs.store.value.failure) this.runs.refresh();
    conversation.look();
  }

  _fail(thrown) {
    this.store.set({ failure: asFailure(thrown) });
  }
}
