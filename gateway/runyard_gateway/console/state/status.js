/** A run's statuses, and how an invocation stands that goes on, as people read them. */

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
