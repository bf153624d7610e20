/**
 * Server-sent events: bytes in, on whatever boundaries, events out.
 *
 * https://html.spec.whatwg.org/multipage/server-sent-events.html#event-stream-interpretation
 * EventSource itself can send no token and no POST.
 */

import { unreachable } from "./failure.js";

const LINE_END = /\r\n|\n|\r/g;

/** An event: `event` is "" where the stream named none; `id` is null where this very event has none. */
export class EventStreamParser {
  constructor() {
    this.lastEventId = "";
    this.retryMs = null;
    this._decoder = new TextDecoder(); // drops a byte order mark
    this._text = "";
    this._afterCr = false;
    this._clear();
  }

  /** @param {Uint8Array} bytes @returns {{event: string, data: string, id: string | null}[]} */
  feed(bytes) {
    let text = this._decoder.decode(bytes, { stream: true });
    if (this._afterCr && text !== "") {
      if (text[0] === "\n") text = text.slice(1);
      this._afterCr = false;
    }
    text = this._text + text;
    const events = [];
    let start = 0;
    for (const { 0: end, index } of text.matchAll(LINE_END)) {
      const event = this._take(text.slice(start, index));
      if (event !== null) events.push(event);
      start = index + end.length;
    }
    // A CR that ends the bytes ends its line at once; an LF that follows it belongs to it.
    if (start > 0 && start === text.length && text.endsWith("\r")) this._afterCr = true;
    this._text = text.slice(start);
    return events;
  }

  _take(line) {
    if (line === "") return this._dispatch();
    if (line[0] === ":") return null;
    const colon = line.indexOf(":");
    const name = colon < 0 ? line : line.slice(0, colon);
    let value = colon < 0 ? "" : line.slice(colon + 1);
    if (value[0] === " ") value = value.slice(1);
    switch (name) {
      case "event":
        this._event = value;
        break;
      case "data":
        this._data.push(value);
        break;
      case "id":
        if (!value.includes("\0")) this._id = value;
        break;
      case "retry":
        if (/^[0-9]+$/.test(value)) this.retryMs = Number(value);
        break;
    }
    return null;
  }

  _dispatch() {
    if (this._id !== null) this.lastEventId = this._id;
    // Without any data line there is no event; one with an empty line is an event whose data is empty.
    const event = this._data.length === 0 ? null : { event: this._event, data: this._data.join("\n"), id: this._id };
    this._clear();
    return event;
  }

  _clear() {
    this._event = "";
    this._data = [];
    this._id = null;
  }
}

/**
 * The events of an open answer, as many at a time as came together.
 *
 * @param {Response} response
 * @param {EventStreamParser} parser
 * @param {number} silenceMs how long nothing at all may come, heartbeats included
 * @throws {Failure} the connection broke, or fell silent
 */
export async function* readEvents(response, parser, silenceMs, signal) {
  const reader = response.body.getReader();
  try {
    for (;;) {
      const { done, value } = await readOrGiveUp(reader, silenceMs, signal);
      if (done) return;
      yield parser.feed(value);
    }
  } finally {
    reader.cancel().catch(() => {}); // what is open is closed; what is broken already needs no second word
  }
}

async function readOrGiveUp(reader, silenceMs, signal) {
  let timer;
  const silence = new Promise((_, reject) => {
    timer = setTimeout(() => reject(unreachable("The connection fell silent.")), silenceMs);
  });
  try {
    return await Promise.race([reader.read().catch((error) => rethrow(error, signal)), silence]);
  } finally {
    clearTimeout(timer);
  }
}

function rethrow(error, signal) {
  if (signal.aborted) throw error;
  throw unreachable("The connection broke.");
}
