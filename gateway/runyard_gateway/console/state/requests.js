/** The reader's requests on a run: send, stop, take back. Text that the gateway refuses returns to the draft. */

import { asFailure } from "../wire/failure.js";
import { isBusy } from "./status.js";

const TITLE_CHARACTERS = 80;

export class Requests {
  /** @param {import("./conversation.js").Conversation} conversation */
  constructor(api, conversation) {
    this._api = api;
    this._conversation = conversation;
    this._unsure = null; // the call that had no answer: it may have been taken
  }

  get canSend() {
    const { agent, runId, run, live, sending } = this._state;
    return agent !== null && sending === null && (runId === null || run !== null || live !== null);
  }

  /** Sends the draft: to the invocation that is followed, or as a turn of its own. */
  async send() {
    const { text } = this._draft;
    if (!this.canSend || text.trim() === "") return;
    this._draft.write("");
    // The same text again is the same call: it is not taken twice.
    await this._deliver(this._unsure?.text === text ? this._unsure : this._newCall(text, text));
  }

  /** Begins a turn with the last of the inputs that a failed one left unanswered: it reads those before it first. */
  async sendAgain() {
    if (!this.canSend) return;
    const { id, text } = this._state.run.pendingInput.at(-1);
    this._set({ sending: text, failure: null });
    let call;
    try {
      const { retracted } = await this._api.retract(this._state.runId, id);
      call = this._newCall(text, retracted.content);
    } catch (error) {
      return this._refused(error);
    }
    await this._deliver(call);
  }

  /** Takes an input back that waits; it is the draft's then. */
  async takeBack(inputId) {
    if (this._state.takingBack !== null) return;
    this._set({ takingBack: inputId, failure: null });
    await this._conversation.act(async () => {
      const { retracted } = await this._api.retract(this._state.runId, inputId);
      this._draft.giveBack(retracted.text);
    });
    await this._conversation.act(() => this._conversation.refresh());
    this._set({ takingBack: null });
  }

  /** Stops the invocation that is followed. What waited to be read, and now never is, is the draft's. */
  async stop() {
    const { live, runId, stopping } = this._state;
    if (live === null || stopping === live.invocationId) return;
    this._set({ stopping: live.invocationId, failure: null });
    try {
      const { dropped } = await this._api.cancel(runId, live.invocationId);
      for (const { text } of dropped.toReversed()) this._draft.giveBack(text);
      await this._conversation.refresh();
    } catch (error) {
      this._set({ stopping: null });
      this._conversation.fail(error);
    }
  }

  /** `text` is shown for it; `body` of a call that begins a turn, null of one that steers. */
  _newCall(text, input) {
    const { runId, live } = this._state;
    const key = newKey();
    if (live !== null) return { text, input, key, body: null };
    // What is written here answers what was read here: it is not for a turn that another page has begun meanwhile.
    const body = runId === null ? { input, title: titleOf(text) } : { input, runId, ifBusy: "reject" };
    return { text, input, key, body };
  }

  async _deliver(call) {
    this._set({ sending: call.text, failure: null });
    try {
      if (call.body === null) await this._steer(call);
      else await this._start(call);
      this._unsure = null;
    } catch (error) {
      this._unsure = error.code === "UNREACHABLE" ? call : null;
      this._draft.giveBack(call.text);
      await this._refused(error);
    }
  }

  async _start({ text, body, key }) {
    const response = await this._api.start(this._state.agent, body, key, this._conversation.signal);
    this._conversation.accepted(text, response);
  }

  async _steer({ input, key }) {
    await this._api.sendInput(this._state.runId, input, key);
    await this._conversation.act(() => this._conversation.refresh());
    this._set({ sending: null });
    this._conversation.act(() => this._conversation.goOn()); // the invocation may have ended: then it is the next one
  }

  /** It is told, and so is what the run is doing instead. */
  async _refused(error) {
    this._set({ sending: null, failure: asFailure(error) });
    if (this._state.run === null) return;
    await this._conversation.act(() => this._conversation.refresh());
    if (isBusy(this._state.run)) this._conversation.act(() => this._conversation.goOn());
  }

  _set(patch) {
    this._conversation.store.set(patch);
  }

  get _draft() {
    return this._conversation.draft;
  }

  get _state() {
    return this._conversation.store.value;
  }
}

function newKey() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return [...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

function titleOf(input) {
  const line = [...input.trim().split("\n")[0]];
  return line.length <= TITLE_CHARACTERS ? line.join("") : `${line.slice(0, TITLE_CHARACTERS - 1).join("").trimEnd()}…`;
}
