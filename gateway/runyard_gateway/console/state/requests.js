/** What the reader asks of a run: to send, to stop, to take back. What the gateway refuses comes back to the draft. */

import { asFailure } from "../wire/failure.js";
import { isBusy } from "./status.js";

const TITLE_CHARACTERS = 80;

export class Requests {
  /** @param {import("./conversation.js").Conversation} conversation */
  constructor(api, conversation) {
    this._api = api;
    this._conversation = conversation;
  }

  get canSend() {
    const { agent, runId, run, live, sending } = this._state;
    return agent !== null && sending === null && (runId === null || run !== null || live !== null);
  }

  /** Sends the draft: to the invocation that is followed, or as a turn of its own. */
  async send() {
    const input = this._draft.text;
    if (!this.canSend || input.trim() === "") return;
    this._draft.write("");
    this._set({ sending: input, failure: null });
    try {
      if (this._state.live === null) await this._start(input);
      else await this._steer(input);
    } catch (error) {
      this._draft.giveBack(input);
      await this._refused(error);
    }
  }

  /** Begins a turn with the last of the inputs that a failed one left unanswered: it reads those before it first. */
  async sendAgain() {
    if (!this.canSend) return;
    const { id, text } = this._state.run.pendingInput.at(-1);
    this._set({ sending: text, failure: null });
    try {
      const { retracted } = await this._api.retract(this._state.runId, id);
      await this._start(retracted.content).catch((error) => {
        this._draft.giveBack(text);
        throw error;
      });
    } catch (error) {
      await this._refused(error);
    }
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
      const { dropped } = await this._api.cancel(runId);
      for (const { text } of dropped.toReversed()) this._draft.giveBack(text);
      await this._conversation.refresh();
    } catch (error) {
      this._set({ stopping: null });
      this._conversation.fail(error);
    }
  }

  async _start(input) {
    const { runId, agent } = this._state;
    // What is written here answers what was read here: it is not for a turn that another page has begun meanwhile.
    const body = runId === null ? { input, title: titleOf(input) } : { input, runId, ifBusy: "reject" };
    const response = await this._api.start(agent, body, this._conversation.signal);
    this._conversation.accepted(this._state.sending, response);
  }

  async _steer(input) {
    await this._api.sendInput(this._state.runId, input);
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

function titleOf(input) {
  const line = [...input.trim().split("\n")[0]];
  return line.length <= TITLE_CHARACTERS ? line.join("") : `${line.slice(0, TITLE_CHARACTERS - 1).join("").trimEnd()}…`;
}
