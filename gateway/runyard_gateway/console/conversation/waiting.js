/** Inputs that are not in the transcript yet: the one that opens a queued turn, and those that wait to be read. */

/**
 * @param {object} state see `../state/conversation.js`
 * @returns {{opening: object | null, waiting: object[]}} inputs {id, text, at}, those that wait with their `receipt`:
 *   "queued"; "steered": the agent reads it, its row is on the way; "unanswered": the run ended before it was read
 */
export function inputsOf({ run, live, groups, frames, outcomes }) {
  const pending = run?.pendingInput ?? [];
  const opening = isAhead({ live, groups }) && run?.invocationId === live.invocationId ? openingOf(pending) : null;
  const steered = new Set(live && frames[live.invocationId].steered);
  const waiting = pending
    .filter((input) => input !== opening)
    .map((input) => ({ ...input, receipt: receiptOf(input) }));
  return { opening, waiting };

  function receiptOf({ id }) {
    if (live === null) return "unanswered";
    return steered.has(id) ? "steered" : "queued";
  }

  /** What earlier turns left unanswered waits too, and came before it. */
  function openingOf(inputs) {
    const ends = [...Object.values(frames).map(({ outcome }) => outcome), ...Object.values(outcomes)];
    const unanswered = new Set(ends.flatMap((end) => end?.unanswered ?? []).map(({ id }) => id));
    return inputs.find(({ id }) => !unanswered.has(id)) ?? null;
  }
}

/** Whether the invocation that is followed has no row of the transcript yet. */
export function isAhead({ live, groups }) {
  return live !== null && !groups.some(({ invocationId }) => invocationId === live.invocationId);
}
