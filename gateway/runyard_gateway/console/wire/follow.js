/** Follows one stream to its terminal frame, through connections that break and gateways that leave. */

import { Backoff } from "./backoff.js";
import { fromBody } from "./failure.js";
import { EventStreamParser, readEvents } from "./sse.js";

/** The gateway sends a heartbeat every 15 s; three that fail to come mean that the connection is dead. */
const SILENCE_MS = 45_000;

const TERMINAL = new Set(["result", "error"]);

/**
 * @param {object} stream
 * @param {Response | null} stream.first an answer that streams already
 * @param {(cursor: string | null) => Promise<Response>} stream.open the stream after a cursor; null: all of it
 * @param {(events: {event: string, data: string, id: string | null}[]) => void} stream.onEvents in order, each once
 * @param {() => void} stream.onRestart the frames after the cursor are gone: the stream begins anew with what there is
 * @param {(failure: Failure | null) => void} stream.onConnection lost, for this reason; null: there again
 * @param {AbortSignal} stream.signal
 * @throws {Failure} the stream is no more, or is not the reader's
 */
export async function follow({ first, open, onEvents, onRestart, onConnection, signal }) {
  const backoff = new Backoff();
  let cursor = null;
  let response = first;
  for (;;) {
    let failure = null;
    try {
      response ??= await open(cursor);
      onConnection(null);
      if (response.status === 204) return; // ended, and this reader has all of it
      const parser = new EventStreamParser();
      for await (const events of readEvents(response, parser, SILENCE_MS, signal)) {
        backoff.reset();
        backoff.firstMs = parser.retryMs ?? backoff.firstMs;
        const refusal = events.findIndex(isRefusal);
        onEvents(refusal < 0 ? events : events.slice(0, refusal));
        cursor = parser.lastEventId || cursor;
        if (refusal >= 0) throw fromBody(JSON.parse(events[refusal].data));
        if (events.some(({ event }) => TERMINAL.has(event))) return;
      }
    } catch (error) {
      if (signal.aborted) throw error;
      if (error.code === "STREAM_GONE") {
        cursor = null;
        onRestart();
      } else if (!error.retryable) {
        throw error;
      }
      failure = error;
    }
    // Without a failure the answer ended before its terminal frame: that gateway is leaving.
    response = null;
    onConnection(failure);
    await backoff.wait(signal);
  }
}

/** An `error` without a number is the gateway's word about this answer; the run's own ends the stream and has one. */
function isRefusal({ event, id }) {
  return event === "error" && id === null;
}
