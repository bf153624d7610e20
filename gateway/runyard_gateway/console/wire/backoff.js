/** How long to wait before the next try: longer each time, and with jitter, so that readers do not come all at once. */

const LONGEST_MS = 10_000;

export class Backoff {
  constructor(firstMs = 1_000) {
    this.firstMs = firstMs;
    this._tries = 0;
  }

  reset() {
    this._tries = 0;
  }

  /**
   * Resolves when the next try is due, or the machine is on line again; rejects with the signal's reason when it is
   * aborted before.
   */
  wait(signal) {
    const longestMs = Math.min(LONGEST_MS, this.firstMs * 2 ** this._tries++);
    return pause(longestMs * (0.5 + Math.random() / 2), signal);
  }
}

function pause(delayMs, signal) {
  return new Promise((resolve, reject) => {
    if (signal.aborted) return reject(signal.reason);
    const waited = new AbortController();
    const over = (settle) => () => {
      clearTimeout(timer);
      waited.abort(); // and with it both listeners
      settle();
    };
    const timer = setTimeout(over(resolve), delayMs);
    addEventListener("online", over(resolve), { signal: waited.signal });
    signal.addEventListener("abort", over(() => reject(signal.reason)), { signal: waited.signal });
  });
}

/** The operation's outcome, tried again for as long as it fails in a way that another try may mend. */
export async function persistently(operation, signal) {
  const backoff = new Backoff();
  for (;;) {
    try {
      return await operation();
    } catch (error) {
      if (signal.aborted || !error.retryable) throw error;
    }
    await backoff.wait(signal);
  }
}
