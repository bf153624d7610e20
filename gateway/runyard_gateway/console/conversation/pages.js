/** Reads a transcript's rows, in order, a page at a time from its end. */

const PAGE_ROWS = 100;

/**
 * The newest rows, and older ones for as long as they belong to the invocation that goes on, which is held whole.
 *
 * @param {string | null} invocationId null: none goes on
 * @returns {Promise<{rows: object[], earlier: string | null}>} `earlier`: the cursor of the page before
 */
export async function newestRows(api, runId, invocationId, signal) {
  let { rows, earlier } = await earlierRows(api, runId, null, signal);
  while (earlier !== null && invocationId !== null && rows[0].invocationId === invocationId) {
    const page = await earlierRows(api, runId, earlier, signal);
    rows = [...page.rows, ...rows];
    earlier = page.earlier;
  }
  return { rows, earlier };
}

/** The page before a cursor; null: the last page. */
export async function earlierRows(api, runId, cursor, signal) {
  const query = { order: "desc", limit: PAGE_ROWS, ...(cursor === null ? {} : { cursor }) };
  const { items, nextCursor } = await api.get(`v1/runs/${encodeURIComponent(runId)}/messages`, query, signal);
  return { rows: items.reverse(), earlier: nextCursor };
}

/** The rows after a number. */
export async function rowsAfter(api, runId, seq, signal) {
  let { rows, earlier } = await earlierRows(api, runId, null, signal);
  while (earlier !== null && rows[0].seq > seq + 1) {
    const page = await earlierRows(api, runId, earlier, signal);
    rows = [...page.rows, ...rows];
    earlier = page.earlier;
  }
  return rows.filter((row) => row.seq > seq);
}
