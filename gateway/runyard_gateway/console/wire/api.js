/** The gateway's HTTP API, called as the reader of this page. */

import { fromResponse, unreachable } from "./failure.js";

/** A body in JSON. What no store holds, half a pair of surrogates for one, is nothing that a reader can have meant. */
const asJson = (body) =>
  JSON.stringify(body, (_, value) =>
    typeof value === "string" ? value.replaceAll("\0", "\ufffd").toWellFormed() : value,
  );

/** Of a call with an `Idempotency-Key`. */
const SENT_IN_VAIN = "The gateway gave no answer. Send it again as it is: it is not taken twice.";

export class Api {
  /**
   * @param {() => string | null} token what to send as Bearer, if anything
   * @param {() => void} onUnauthenticated the gateway wants a token, or another one
   */
  constructor(token, onUnauthenticated) {
    this._token = token;
    this._onUnauthenticated = onUnauthenticated;
  }

  /** A JSON answer. @throws {Failure} */
  async get(path, query = {}, signal = undefined) {
    const response = await this._send(path, { query, signal });
    return this._read(response, signal);
  }

  /**
   * Starts or continues a run: the open answer that streams. The signal ends the stream; the call itself is finished,
   * whoever leaves meanwhile.
   *
   * @param {string} key the same call under the same key is taken once
   * @throws {Failure}
   */
  async start(agent, body, key, signal) {
    const reading = new AbortController();
    const response = await this._send(`v1/agents/${encodeURIComponent(agent)}/runs`, {
      method: "POST",
      silence: SENT_IN_VAIN,
      headers: { Accept: "text/event-stream", "Content-Type": "application/json", "Idempotency-Key": key },
      body: asJson(body),
      signal: reading.signal,
    });
    if (signal.aborted) reading.abort();
    else signal.addEventListener("abort", () => reading.abort(), { once: true });
    return response;
  }

  /** Steers a run that is at work, or continues it if that has just ended. `key` as above. @throws {Failure} */
  async sendInput(runId, input, key) {
    const response = await this._send(`v1/runs/${encodeURIComponent(runId)}/input`, {
      method: "POST",
      silence: SENT_IN_VAIN,
      headers: { "Content-Type": "application/json", "Idempotency-Key": key },
      body: asJson({ input }),
    });
    return this._read(response);
  }

  /** Takes an input back that is not read yet: `{retracted: {id, text, at, content}}`. @throws {Failure} */
  async retract(runId, inputId) {
    const path = `v1/runs/${encodeURIComponent(runId)}/input/${encodeURIComponent(inputId)}`;
    return this._read(await this._send(path, { method: "DELETE", silence: "The gateway gave no answer." }));
  }

  /** Stops this invocation, and none after it: `{dropped: inputs that nobody will read, ...}`. @throws {Failure} */
  async cancel(runId, invocationId) {
    const response = await this._send(`v1/runs/${encodeURIComponent(runId)}/cancel`, {
      method: "POST",
      silence: "The gateway gave no answer: try again.",
      headers: { "Content-Type": "application/json" },
      body: asJson({ invocationId }),
    });
    return this._read(response);
  }

  /** A stream after a cursor, or from its beginning: an open answer, or 204 at its end. @throws {Failure} */
  stream(streamId, cursor, signal) {
    const headers = { Accept: "text/event-stream" };
    if (cursor !== null) headers["Last-Event-ID"] = cursor;
    return this._send(`v1/streams/${encodeURIComponent(streamId)}`, { headers, signal });
  }

  async _send(path, { query = {}, headers = {}, silence, signal, ...more }) {
    const url = new URL(path, document.baseURI);
    for (const [name, value] of Object.entries(query)) url.searchParams.set(name, value);
    const token = this._token();
    let response;
    try {
      response = await fetch(url, {
        ...more,
        headers: token === null ? headers : { ...headers, Authorization: `Bearer ${token}` },
        signal,
        cache: "no-store",
      });
    } catch (error) {
      if (signal?.aborted) throw error;
      throw unreachable(silence);
    }
    if (response.ok) return response;
    if (response.status === 401 && token === this._token()) this._onUnauthenticated(); // not of a token before
    throw await fromResponse(response);
  }

  async _read(response, signal = undefined) {
    try {
      return await response.json();
    } catch (error) {
      if (signal?.aborted) throw error;
      throw unreachable("The gateway's answer broke off.");
    }
  }
}
