/** One conversation with one agent: a run that was opened, or one that begins with the first input. */

import { NOTHING_SEEN, reduce } from "../conversation/frames.js";
import { earlierRows, newestRows, rowsAfter } from "../conversation/pages.js";
import { byInvocation } from "../conversation/transcript.js";
import { persistently } from "../wire/backoff.js";
import { asFailure } from "../wire/failure.js";
import { follow } from "../wire/follow.js";
import { isBusy } from "./status.js";
import { Store } from "./store.js";

const TITLE_CHARACTERS = 80;

/**
 * What is known of it:
 *   runId, agent           null until there is one
 *   run                    the run as the API shows it, null before it was read
 *   groups, earlier        the transcript by invocation; the cursor of what comes before, null: nothing does
 *   frames                 by invocation: what was seen of the streams followed here
 *   outcomes               by invocation: how it ended, with `records` of its calls; what the page did not see itself
 *   live                   {invocationId, input} of the invocation that is followed, null when none is
 *   sending                the input that the gateway has not accepted yet
 *   connection             the failure that broke the stream off, null while it is there
 *   failure                what ended an action
 */
const EMPTY = Object.freeze({
  runId: null,
  agent: null,
  run: null,
  groups: Object.freeze([]),
  earlier: null,
  frames: Object.freeze({}),
  outcomes: Object.freeze({}),
  live: null,
  sending: null,
  connection: null,
  failure: null,
});

export class Conversation {
  /**
   * @param {{onStarted: (runId: string) => void, onChanged: () => void}} listeners a run began here; a run's row changed
   */
  constructor(api, { runId = null, agent = null }, listeners) {
    this._api = api;
    this._listeners = listeners;
    this._leaving = new AbortController();
    this._refreshing = null;
    this._isStale = false;
    this.store = new Store({ ...EMPTY, runId, agent });
  }

  /** Nothing of it is read any more. The run itself goes on: a disconnect cancels nothing. */
  close() {
    this._leaving.abort();
  }

  choose(agent) {
    this.store.set({ agent });
  }

  dismissFailure() {
    this.store.set({ failure: null });
  }

  /** Read the run, its transcript, and follow what goes on in it. */
  open() {
    return this._act(async () => {
      const run = await this._readRun();
      const live = isBusy(run) ? run.invocationId : null;
      const { rows, earlier } = await newestRows(this._api, run.id, live, this._signal);
      this.store.set({ run, agent: run.agent, groups: byInvocation(rows), earlier });
      await this._goOn(run);
    });
  }

  /** The page of the transcript before what is shown. */
  loadEarlier() {
    return this._act(async () => {
      const { runId, earlier } = this.store.value;
      const page = await earlierRows(this._api, runId, earlier, this._signal);
      this._setRows([...page.rows, ...this._rows]);
      this.store.set({ earlier: page.earlier });
      await this._readOutcomes();
    });
  }

  /** @returns {Promise<boolean>} whether the gateway accepted the input */
  async send(input) {
    const { runId, agent } = this.store.value;
    this.store.set({ sending: input, failure: null });
    let response;
    try {
      // What is written here answers what was read here: it is not for a turn that another page has begun meanwhile.
      const body = runId === null ? { input, title: titleOf(input) } : { input, runId, ifBusy: "reject" };
      response = await this._api.start(agent, body, this._signal);
    } catch (error) {
      if (this._signal.aborted) return false;
      const failure = asFailure(error);
      this.store.set({ sending: null, failure });
      this._listeners.onChanged();
      if (failure.code === "RUN_BUSY") this._joinBusy().catch((other) => this._fail(other));
      return false;
    }
    this._act(() => this._accepted(input, response));
    return true;
  }

  async _accepted(input, response) {
    const isNew = this.store.value.runId === null;
    const runId = response.headers.get("X-Run-Id");
    const invocationId = response.headers.get("Location").split("/").at(-1);
    this.store.set({ runId, sending: null });
    if (isNew) this._listeners.onStarted(runId);
    this._listeners.onChanged();
    await this._follow({ invocationId, streamId: response.headers.get("X-Stream-Id"), input, first: response });
  }

  /** Somebody else's call is being answered: show that. */
  async _joinBusy() {
    await this._goOn(await this._readRun());
  }

  /** Follow the invocation that is in progress, and the ones that others begin when it has ended. */
  async _goOn(run) {
    if (!isBusy(run)) return this._readOutcomes();
    const input = run.pendingInput.map(({ text }) => text).join("\n\n");
    this._readOutcomes(run.invocationId).catch((error) => this._fail(error));
    await this._follow({ invocationId: run.invocationId, streamId: run.streamId, input, first: null });
  }

  async _follow({ invocationId, streamId, input, first }) {
    const { live } = this.store.value;
    if (live?.invocationId === invocationId) return; // it is followed already
    this._setFrames(invocationId, NOTHING_SEEN, { live: { invocationId, input } });
    try {
      await follow({
        first,
        open: (cursor) => this._api.stream(streamId, cursor, this._signal),
        onEvents: (events) => this._see(invocationId, events),
        onRestart: () => this._setFrames(invocationId, NOTHING_SEEN),
        onConnection: (connection) => this.store.set({ connection }),
        signal: this._signal,
      });
      await this._refresh();
      const run = await persistently(() => this._readRun(), this._signal);
      this.store.set({ run, live: null, connection: null });
      this._listeners.onChanged();
      await this._goOn(run);
    } finally {
      if (!this._signal.aborted && this.store.value.live?.invocationId === invocationId) {
        this.store.set({ live: null, connection: null });
      }
    }
  }

  _see(invocationId, events) {
    if (events.length === 0) return;
    const before = this.store.value.frames[invocationId];
    const after = events.reduce(reduce, before);
    this._setFrames(invocationId, after);
    // What was committed is read from the rows; a rewind may have withdrawn what only they hold now.
    if (after.announcedSeq > this._lastSeq || after.rewinds > before.rewinds) {
      this._refresh().catch((error) => this._fail(error));
    }
  }

  /** Read the rows that are new. However often it is asked for, one request is under way, and one more follows. */
  _refresh() {
    this._isStale = true;
    this._refreshing ??= this._refreshWhileStale().finally(() => (this._refreshing = null));
    return this._refreshing;
  }

  async _refreshWhileStale() {
    while (this._isStale) {
      this._isStale = false;
      const { runId } = this.store.value;
      const read = () => rowsAfter(this._api, runId, this._lastSeq, this._signal);
      const rows = await persistently(read, this._signal);
      if (rows.length > 0) this._setRows([...this._rows, ...rows]);
    }
  }

  /** How the invocations ended that were not followed here. */
  async _readOutcomes(exceptId = null) {
    const { groups, frames, outcomes } = this.store.value;
    const unknown = groups
      .map((group) => group.invocationId)
      .filter((id) => id !== exceptId && !frames[id]?.outcome && !outcomes[id]);
    await Promise.all(unknown.reverse().map((id) => this._readOutcome(id)));
  }

  async _readOutcome(invocationId) {
    const outcome = await this._api.get(`v1/invocations/${encodeURIComponent(invocationId)}`, {}, this._signal);
    const calls = outcome.stepRecords.flatMap((step) => step.calls);
    const records = new Map(calls.map((call) => [call.id, call]));
    this.store.set({ outcomes: { ...this.store.value.outcomes, [invocationId]: { ...outcome, records } } });
  }

  async _readRun() {
    return this._api.get(`v1/runs/${encodeURIComponent(this.store.value.runId)}`, {}, this._signal);
  }

  _setRows(rows) {
    this.store.set({ groups: regrouped(this.store.value.groups, byInvocation(rows)) });
  }

  _setFrames(invocationId, frames, more = {}) {
    this.store.set({ ...more, frames: { ...this.store.value.frames, [invocationId]: frames } });
  }

  get _rows() {
    return this.store.value.groups.flatMap((group) => group.rows);
  }

  get _lastSeq() {
    return this.store.value.groups.at(-1)?.rows.at(-1).seq ?? 0;
  }

  get _signal() {
    return this._leaving.signal;
  }

  async _act(action) {
    this.store.set({ failure: null });
    try {
      await action();
    } catch (error) {
      this._fail(error);
    }
  }

  _fail(error) {
    if (!this._signal.aborted) this.store.set({ failure: asFailure(error) });
  }
}

/** A group that did not change stays the same object, so that its view need not be made anew. */
function regrouped(before, after) {
  const known = new Map(before.map((group) => [`${group.rows[0].seq}-${group.rows.at(-1).seq}`, group]));
  return after.map((group) => known.get(`${group.rows[0].seq}-${group.rows.at(-1).seq}`) ?? group);
}

function titleOf(input) {
  const line = [...input.trim().split("\n")[0]];
  return line.length <= TITLE_CHARACTERS ? line.join("") : `${line.slice(0, TITLE_CHARACTERS - 1).join("").trimEnd()}…`;
}
