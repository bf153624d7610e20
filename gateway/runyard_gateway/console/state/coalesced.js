/** Coalesces calls of an action: one runs at a time, and however many come meanwhile, one more follows. */

/**
 * @param {() => Promise<void>} action
 * @returns {() => Promise<void>} settles when an action has ended that began after the call
 */
export function coalesced(action) {
  let underWay = null;
  let isDue = false;

  async function whileDue() {
    while (isDue) {
      isDue = false;
      await action();
    }
  }

  return () => {
    isDue = true;
    underWay ??= whileDue().finally(() => (underWay = null));
    return underWay;
  };
}
