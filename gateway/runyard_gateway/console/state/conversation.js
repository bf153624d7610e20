/** One conversation with one agent: a run that was opened, or one that begins with the first input; read and followed. */

import { NOTHING_SEEN, reduce } from "../conversation/frames.js";
import { earlierRows, newestRows, rowsAfter } from "../conversation/pages.js";
import { byInvocation } from "../conversation/transcript.js";
import { persistently } from "../wire/backoff.js";
import { asFailure } from "../wire/failure.js";
import { follow } from "../wire/follow.js";
import { coalesced } from "./coalesced.js";
import { Draft } from "./drafts.js";
import { isBusy } from "./status.js";
import { Store } from "./store.js";

/**
 * What is known of it:
 *   runId, agent           null until there is one
 *   run                    the run as the API shows it, null before it was read
 *   groups, earlier        the transcript by invocation, as long as that row of the run says; the cursor of what comes
 *                          before, null: nothing does
 *   frames                 by invocation: what was seen of the streams followed here
 *   outcomes               by invocation: how it ended, with `records` of its calls; what the page did not see itself
 *   live                   {invocationId, input} of the invocation that is followed, null when none is; `input`: what
 *                          was sent here to begin it, null when it was begun elsewhere
 *   sending                the input that the gateway has not accepted yet
 *   stopping               the id of the invocation that was asked here to stop
 *   takingBack             the id of the input that is being taken back
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
  stopping: null,
  takingBack: null,
  connection: null,
  failure: null,
});

export class Conversation {
  /**
   * @param {object} listeners
   * @param {(runId: string) => void} listeners.onStarted a run began here
   * @param {() => void} listeners.onChanged a run's row changed
   */
  constructor(api, { runId = null, agent = null }, listeners) {
    this._api = api;
    this._listeners = listeners;
    this._leaving = new AbortController();
    this._lostId = null; // the invocation whose stream could not be followed: only `open` tries it again
    this._isLost = false; // the run could not be read: the same
    this.store = new Store({ ...EMPTY, runId, agent });
    this.draft = new Draft(runId);
    /** Reads the run and the rows that are new. */
    this.refresh = coalesced(() => this._readNews());
  }

  /** Aborted when nothing of it is read any more. */
  get signal() {
    return this._leaving.signal;
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
    this.dismissFailure();
    this._lostId = null;
    this._isLost = false;
    return this.act(async () => {
      const run = await this._readRun();
      const live = isBusy(run) ? run.invocationId : null;
      const { rows, earlier } = await newestRows(this._api, run.id, live, this.signal);
      this.store.set({ run, agent: run.agent, groups: byInvocation(upTo(run, rows)), earlier });
      await this.goOn();
    });
  }

  /** See what became of the run: what others do to it is on its row, and not all of it in its stream. */
  look() {
    if (this.store.value.run === null || this._isLost) return;
    this.act(async () => {
      await this.refresh();
      await this.goOn();
    });
  }

  /** The page of the transcript before what is shown. */
  loadEarlier() {
    this.dismissFailure();
    return this.act(async () => {
      const { runId, earlier } = this.store.value;
      const page = await earlierRows(this._api, runId, earlier, this.signal);
      this.store.set({ groups: this._grouped([...page.rows, ...this._rows]), earlier: page.earlier });
      await this._readOutcomes();
    });
  }

  /** A call made here was accepted: show its run, and follow what it began. */
  accepted(input, response) {
    const isNew = this.store.value.runId === null;
    const runId = response.headers.get("X-Run-Id");
    const invocationId = response.headers.get("Location").split("/").at(-1);
    this.store.set({ runId, sending: null });
    if (isNew) this.draft.moveTo(runId);
    if (isNew) this._listeners.onStarted(runId);
    this._listeners.onChanged();
    const streamId = response.headers.get("X-Stream-Id");
    if (this.store.value.live === null) {
      this.act(() => this._follow({ invocationId, streamId, input, first: response }));
    } else {
      response.body.cancel(); // it was accepted before, unheard, and is followed already
    }
    this.act(() => this.refresh());
  }

  /** Follow the invocation that is in progress, and the ones that others begin when it has ended. */
  async goOn() {
    const { run, live } = this.store.value;
    if (live !== null) return; // when it has ended, what is next is followed
    if (!isBusy(run)) return this._readOutcomes();
    if (run.invocationId === this._lostId) return;
    this.act(() => this._readOutcomes(run.invocationId));
    await this._follow({ invocationId: run.invocationId, streamId: run.streamId, input: null, first: null });
  }

  async _follow({ invocationId, streamId, input, first }) {
    this._setFrames(invocationId, NOTHING_SEEN, { live: { invocationId, input } });
    try {
      await follow({
        first,
        open: (cursor) => this._api.stream(streamId, cursor, this.signal),
        onEvents: (events) => this._see(invocationId, events),
        onRestart: () => this._setFrames(invocationId, NOTHING_SEEN),
        onConnection: (connection) => this.store.set({ connection }),
        signal: this.signal,
      });
      await this.refresh();
    } catch (error) {
      this._lostId = invocationId;
      throw error;
    } finally {
      this.store.set({ live: null, connection: null });
    }
    this._listeners.onChanged();
    await this.goOn();
  }

  _see(invocationId, events) {
    if (events.length === 0) return;
    const before = this.store.value.frames[invocationId];
    const after = events.reduce(reduce, before);
    this._setFrames(invocationId, after);
    // What was committed is read from the rows; a rewind may have withdrawn what only they hold now.
    const isBehind = after.announcedSeq > this._lastSeq || after.rewinds > before.rewinds;
    if (isBehind || after.status !== before.status || after.steered !== before.steered) {
      this.act(() => this.refresh());
    }
  }

  /** The run and its rows are shown as they were at one moment: an input that waits is not in the transcript too. */
  async _readNews() {
    const { runId, run: before } = this.store.value;
    const run = await persistently(() => this._readRun(), this.signal);
    const wasCleared = run.messageCount < this._lastSeq;
    const lastSeq = wasCleared ? 0 : this._lastSeq;
    const read = () => rowsAfter(this._api, runId, lastSeq, this.signal);
    const rows = run.messageCount > lastSeq ? upTo(run, await persistently(read, this.signal)) : [];
    const groups = this._grouped([...(wasCleared ? [] : this._rows), ...rows]);
    this.store.set({ run, agent: run.agent, groups, ...(wasCleared ? { earlier: null } : {}) });
    if (run.status !== before?.status) this._listeners.onChanged();
  }

  /** How the invocations ended that were not followed here. */
  async _readOutcomes(exceptId = null) {
    const { groups, frames, outcomes } = this.store.value;
    const unknown = groups
      .map((group) => group.invocationId)
      .filter((id) => id !== null && id !== exceptId && !frames[id]?.outcome && !outcomes[id]);
    await Promise.all(unknown.reverse().map((id) => this._readOutcome(id)));
  }

  async _readOutcome(invocationId) {
    const outcome = await this._api.get(`v1/invocations/${encodeURIComponent(invocationId)}`, {}, this.signal);
    const calls = outcome.stepRecords.flatMap((step) => step.calls);
    const records = new Map(calls.map((call) => [call.id, call]));
    this.store.set({ outcomes: { ...this.store.value.outcomes, [invocationId]: { ...outcome, records } } });
  }

  async _readRun() {
    try {
      return await this._api.get(`v1/runs/${encodeURIComponent(this.store.value.runId)}`, {}, this.signal);
    } catch (error) {
      this._isLost = !error.retryable;
      throw error;
    }
  }

  _grouped(rows) {
    return regrouped(this.store.value.groups, byInvocation(rows));
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

  /** Whatever was thrown is shown. */
  fail(error) {
    if (!this.signal.aborted) this.store.set({ failure: asFailure(error) });
  }

  /** What fails is shown. */
  async act(action) {
    try {
      await action();
    } catch (error) {
      this.fail(error);
    }
  }
}

/** The rows that the run had when it was read. */
function upTo({ messageCount }, rows) {
  return rows.filter(({ seq }) => seq <= messageCount);
}

/** A group that did not change stays the same object, so that its view need not be made anew. */
function regrouped(before, after) {
  const known = new Map(before.map((group) => [`${group.rows[0].seq}-${group.rows.at(-1).seq}`, group]));
  return after.map((group) => known.get(`${group.rows[0].seq}-${group.rows.at(-1).seq}`) ?? group);
}
