/** A value that views watch: replaced as a whole, never changed in place. */

export class Store {
  constructor(value) {
    this.value = value;
    this._watchers = new Set();
  }

  /** @param {object} patch the properties that change */
  set(patch) {
    this.value = { ...this.value, ...patch };
    for (const watcher of this._watchers) watcher();
  }

  /** @returns {() => void} ends the watch */
  watch(watcher) {
    this._watchers.add(watcher);
    return () => this._watchers.delete(watcher);
  }
}
