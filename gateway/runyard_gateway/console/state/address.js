/** The page's address: `/?run=run_...` for a run, `/?agent=...` for a new conversation. */

/** @returns {{runId: string | null, agent: string | null}} */
export function readAddress() {
  const query = new URLSearchParams(location.search);
  return { runId: query.get("run"), agent: query.get("agent") };
}

export function hrefOf({ runId = null, agent = null }) {
  const query = new URLSearchParams(runId !== null ? { run: runId } : agent !== null ? { agent } : {});
  const text = query.toString();
  return text === "" ? location.pathname : `${location.pathname}?${text}`;
}

/** A place of its own in the tab's history. */
export function goTo(place) {
  history.pushState(null, "", hrefOf(place));
}

/** The same place under another address: a conversation that has got its run. */
export function becomes(place) {
  history.replaceState(null, "", hrefOf(place));
}
