/** `rewind {toSeq, length}`: withdraws all answer text, thinking and unanswered calls that came after frame `toSeq`. */

import { Failure } from "../wire/failure.js";

/**
 * @param {number} length the code points of answer text that are kept: the other half of the rule, held against it
 * @throws {Failure} the two halves do not agree
 */
export function rewind(parts, { toSeq, length }) {
  const left = parts.flatMap((part) => {
    switch (part.kind) {
      case "text":
      case "thinking":
        return cut(part, toSeq);
      case "call":
        return part.answered || part.seq <= toSeq ? [part] : [];
      default:
        return [part];
    }
  });
  const found = [...kept(left)].length;
  if (found !== length) {
    const message = `a rewind to frame ${toSeq} leaves ${found} characters, not ${length}`;
    throw new Failure({ code: "STREAM_BROKEN", message: `The stream contradicts itself: ${message}.` });
  }
  return left;
}

/** The answer text of the parts. */
function kept(parts) {
  return parts.reduce((text, part) => (part.kind === "text" ? text + part.text : text), "");
}

function cut(part, toSeq) {
  let marks = part.marks;
  while (marks !== null && marks.seq > toSeq) marks = marks.before;
  return marks === null ? [] : [{ ...part, text: part.text.slice(0, marks.end), marks }];
}
