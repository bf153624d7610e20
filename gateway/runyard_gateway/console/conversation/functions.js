/** Runs of functions: each is one call, and reads no further messages. */

const PREFIX = "fn:";

/** @returns {string | null} the function's name; null: an agent's run */
export function functionOf(agent) {
  return agent?.startsWith(PREFIX) ? agent.slice(PREFIX.length) : null;
}

/** What is said of a run's agent. */
export function nameOf(agent) {
  return functionOf(agent) ?? agent;
}

/** A call's arguments in one line. */
export function argumentWords(input) {
  if (input === null || typeof input !== "object") return JSON.stringify(input);
  return Object.entries(input)
    .map(([name, value]) => `${name}: ${typeof value === "string" ? value : JSON.stringify(value)}`)
    .join(", ");
}

/**
 * What came of the call, as its row holds it: {isError: false, value} or {isError: true, value: what the caller was
 * told}. Null: the row is none of a function's.
 */
export function valueOf({ content }) {
  const held = parsed(content);
  if (held?.error) {
    const { code, message, fields } = held.error;
    return { isError: true, value: { code, message, ...fields } };
  }
  return held !== null && "output" in held ? { isError: false, value: held.output } : null;
}

/** @returns {object | null} the object that a text holds as JSON */
export function parsed(text) {
  try {
    const value = JSON.parse(text);
    return value !== null && typeof value === "object" ? value : null;
  } catch {
    return null;
  }
}
