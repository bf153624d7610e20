/**
 * What a reader has seen of one invocation: state + frame -> state, nothing else.
 *
 * `parts`, in the order of their frames:
 *   {kind: "text" | "thinking", text, marks, row}   marks: which frame brought the text up to where
 *   {kind: "call", id, name, input, seq, answered, isError, durationMs, outputs, events}
 *   {kind: "event", name, data, row}                what an author's code sent and no single call can be named for
 * `row` is the number of the transcript's row that a part was committed with; null until then.
 *
 * Beside them:
 *   status       the last one told, null before the first; whatever the agent says or does after it makes it "running"
 *   retry        {model, attempt, waitMs} while the status is "retrying": what is tried next, and how long after
 *   position     its place among the calls that wait for a worker, while it is told
 *   waitReason   why its turn does not come, while that is told
 *   steered      ids of the inputs that the transcript has taken in
 *   isWithdrawn  output was taken back that the agent has not made up for yet
 *   outcome      the invocation's end, null before it
 */

import { rewind } from "./rewind.js";

export const NOTHING_SEEN = Object.freeze({
  status: null,
  retry: null,
  position: null,
  waitReason: null,
  steered: Object.freeze([]),
  isWithdrawn: false,
  parts: Object.freeze([]),
  seq: 0,
  announcedSeq: 0,
  rewinds: 0,
  outcome: null,
});

/** @param {{event: string, data: string, id: string | null}} frame as the event stream gave it */
export function reduce(state, { event, data, id }) {
  const seq = id === null ? state.seq : Number(id);
  return { ...apply(NOT_AT_WORK.has(event) ? state : atWork(state), event, data, seq, id !== null), seq };
}

/** What says nothing of the agent's being at work. */
const NOT_AT_WORK = new Set(["status", "rewind", "queued", "result", "error"]);

/** It says or does something: what it waited for before is over. */
function atWork(state) {
  return state.status === "running" ? state : { ...state, status: "running", retry: null, position: null, waitReason: null };
}

function apply(state, event, data, seq, isNumbered) {
  switch (event) {
    case "":
      return said(state, "text", data, seq);
    case "text": // answer text that holds a CR, at which SSE would have ended the line
      return said(state, "text", JSON.parse(data), seq);
    case "thinking":
      return said(state, "thinking", data, seq);
    case "tool_start":
      return called(state, { ...JSON.parse(data), answered: false }, seq);
    case "tool":
      return called(state, { ...JSON.parse(data), answered: true }, seq);
    case "output":
      return output(state, JSON.parse(data));
    case "message":
      return announced(state, JSON.parse(data));
    case "status":
      return told(state, JSON.parse(data));
    case "rewind":
      return rewound(state, rewind(state.parts, JSON.parse(data)), isNumbered);
    case "steered": // its row is announced beside it
      return { ...state, steered: [...state.steered, ...JSON.parse(data).inputIds] };
    case "queued":
      return state;
    case "result":
      return { ...state, outcome: JSON.parse(data) };
    case "error":
      return { ...state, outcome: failed(JSON.parse(data).error) };
    default:
      return sent(state, event, JSON.parse(data));
  }
}

function told(state, { status, position = null, waitReason = null, ...retry }) {
  return { ...state, status, position, waitReason, retry: status === "retrying" ? retry : null };
}

/** One without a number takes nothing back: the gateway begins a new reader's stream with it. */
function rewound(state, parts, isNumbered) {
  const isWithdrawn = state.isWithdrawn || (isNumbered && sizeOf(parts) < sizeOf(state.parts));
  return { ...state, parts, isWithdrawn, rewinds: state.rewinds + 1 };
}

function sizeOf(parts) {
  return parts.reduce((size, { text }) => size + (text?.length ?? 1), 0);
}

function said(state, kind, text, seq) {
  const last = state.parts.at(-1);
  if (last?.kind !== kind || last.row !== null) {
    return plus(state, { kind, text, marks: { seq, end: text.length, before: null }, row: null });
  }
  const whole = last.text + text;
  return replaced(state, last, { ...last, text: whole, marks: { seq, end: whole.length, before: last.marks } });
}

/** A call that is begun or answered; one that was refused or interrupted is answered without having begun. */
function called(state, { id, name, input, answered, isError = false, durationMs = null }, seq) {
  const known = find(state, id);
  const told = { id, name, input, answered, isError, durationMs };
  if (known) return replaced(state, known, { ...known, ...told });
  return plus(state, { kind: "call", ...told, seq, outputs: [], events: [] });
}

/** What a tool wrote for its readers. */
function output(state, { id, text }) {
  const call = find(state, id);
  if (!call) return plus(state, { kind: "event", name: "output", data: text, row: null });
  return replaced(state, call, { ...call, outputs: [...call.outputs, text] });
}

/** An event names no call: it is shown with the only one that is running, else on its own. */
function sent(state, name, data) {
  const running = state.parts.filter((part) => part.kind === "call" && !part.answered);
  if (running.length !== 1) return plus(state, { kind: "event", name, data, row: null });
  const [call] = running;
  return replaced(state, call, { ...call, events: [...call.events, { name, data }] });
}

/** A row was committed. All that came before an assistant's row belongs to it, or goes before it. */
function announced(state, { seq, role }) {
  const announcedSeq = Math.max(state.announcedSeq, seq);
  if (role !== "assistant") return { ...state, announcedSeq };
  const parts = state.parts.map((part) => (part.row === null ? { ...part, row: seq } : part));
  return { ...state, parts, announcedSeq, isWithdrawn: false };
}

function failed({ code, message, ...result }) {
  return { ...result, error: { code, message } };
}

function find(state, id) {
  return state.parts.find((part) => part.kind === "call" && part.id === id);
}

function plus(state, part) {
  return { ...state, parts: [...state.parts, part] };
}

function replaced(state, part, other) {
  return { ...state, parts: state.parts.with(state.parts.indexOf(part), other) };
}
