/** The words for a run's status, and for the state of an invocation in progress. */

export const STATUS_WORDS = Object.freeze({
  idle: "Idle",
  queued: "Queued",
  running: "Running",
  waiting: "Waiting for a person",
  completed: "Completed",
  failed: "Failed",
  cancelled: "Cancelled",
  stopping: "Stopping",
  retrying: "Trying again",
  between: "Queued",
});

/** An invocation is in progress or about to be. */
export function isBusy({ status }) {
  return status === "queued" || status === "running";
}
