/** Rows of the transcript as parts like those of frames: {kind: "input" | "text" | "thinking" | "call" | "block"}. */

/** Rows by invocation, in order: [{invocationId, rows}]; null for rows that none wrote, but a caller as its history. */
export function byInvocation(rows) {
  const groups = [];
  for (const row of rows) {
    const last = groups.at(-1);
    if (last?.invocationId === row.invocationId) last.rows.push(row);
    else groups.push({ invocationId: row.invocationId, rows: [row] });
  }
  return groups;
}

/** Results by the call that they answer: Map of {content, isError}. */
export function resultsOf(rows) {
  const results = new Map();
  for (const block of rows.flatMap((row) => blocksOf(row))) {
    if (block.type === "tool_result") {
      results.set(block.tool_use_id, { content: block.content ?? "", isError: block.is_error === true });
    }
  }
  return results;
}

/** One row's parts; its results are not among them. */
export function partsOf(row) {
  const parts = [];
  for (const block of blocksOf(row)) {
    const last = parts.at(-1);
    if (block.type === "text" && row.role === "user") parts.push({ kind: "input", text: block.text });
    // A text that cites is stored in pieces; it was said in one.
    else if (block.type === "text" && last?.kind === "text") last.text += block.text;
    else if (block.type !== "tool_result") parts.push(partOf(block));
  }
  return parts;
}

function partOf(block) {
  switch (block.type) {
    case "text":
      return { kind: "text", text: block.text };
    case "thinking":
      return { kind: "thinking", text: block.thinking };
    case "tool_use":
      return { kind: "call", id: block.id, name: block.name, input: block.input };
    default:
      return { kind: "block", block };
  }
}

/** Plain user text is stored as a string. */
function blocksOf({ content }) {
  return typeof content === "string" ? [{ type: "text", text: content }] : content;
}
