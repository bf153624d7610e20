/**
 * One invocation as it is shown: the committed rows, then what the stream has beyond them.
 *
 * The rows are the truth. Frames add what rows do not hold (durations, what tools wrote, events) and the answer that is
 * being written. Both hold the same answer text from its beginning, so nothing is shown twice: of the frames' text only
 * that is shown which goes beyond the rows'.
 */

import { partsOf, resultsOf } from "./transcript.js";

/**
 * @param {object[]} rows of this invocation, from its first on
 * @param {object | null} frames see `frames.js`; null where nobody followed it
 * @param {Map<string, {isError: boolean, durationMs: number | null}>} records the calls as the ledger has them
 * @returns {object[]} parts, calls with `result`, `isError`, `durationMs`, `outputs`, `events`
 */
export function turnParts(rows, frames, records = new Map()) {
  const seen = frames?.parts ?? [];
  const results = resultsOf(rows);
  const shown = [];
  for (const row of rows) {
    if (row.role === "assistant") shown.push(...seen.filter((part) => part.kind === "event" && part.row === row.seq));
    shown.push(...partsOf(row).filter(isSaid));
  }
  const live = beyond(shown, seen, rows);
  return [...shown, ...live].map((part) => (part.kind === "call" ? callPart(part, seen, results, records) : part));
}

/** Blocks of no text (an empty one beside a call; thinking that only has a signature) say nothing. */
function isSaid(part) {
  return !("text" in part) || part.text !== "";
}

/** The parts of the frames that the rows do not account for. */
function beyond(shown, seen, rows) {
  const committedSeq = rows.findLast((row) => row.role === "assistant")?.seq ?? 0;
  const committedLength = shown.reduce((sum, part) => (part.kind === "text" ? sum + part.text.length : sum), 0);
  const calls = new Set(shown.filter((part) => part.kind === "call").map((part) => part.id));
  const live = [];
  let offset = 0; // in the answer text
  for (const part of seen) {
    switch (part.kind) {
      case "text": {
        const text = part.text.slice(Math.max(0, committedLength - offset));
        offset += part.text.length;
        if (text !== "") live.push({ kind: "text", text });
        break;
      }
      case "thinking":
        if (offset >= committedLength && !isCommitted(part, committedSeq)) live.push(part);
        break;
      case "call":
        if (!calls.has(part.id)) live.push(part);
        break;
      case "event":
        if (!isCommitted(part, committedSeq)) live.push(part);
        break;
    }
  }
  return live;
}

function isCommitted({ row }, committedSeq) {
  return row !== null && row <= committedSeq;
}

function callPart({ id, name, input }, seen, results, records) {
  const frame = seen.find((part) => part.kind === "call" && part.id === id);
  const record = records.get(id);
  const result = results.get(id) ?? null;
  return {
    kind: "call",
    id,
    name,
    input,
    result,
    answered: result !== null || frame?.answered === true,
    isError: result?.isError ?? frame?.isError ?? false,
    durationMs: frame?.durationMs ?? record?.durationMs ?? null,
    outputs: frame?.outputs ?? [],
    events: frame?.events ?? [],
  };
}
