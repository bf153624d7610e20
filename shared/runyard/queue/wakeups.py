"""The one message there is, and its publisher.

Queue `<prefix>.<queue>`, actor `wake`, `kwargs {"run_id", "invocation_id", "queue"}` (for traces: a worker claims the
best queued run, whichever message woke it).
"""

import asyncio
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Protocol

import dramatiq
import structlog

from runyard.ids import InvocationId, RunId

ACTOR = "wake"
PUBLISH_THREADS = 2
PENDING_MAX = 10_000

log = structlog.get_logger()


class Wakeable(Protocol):
    """A run that is queued (`runyard.db.claims.GivenBack`)."""

    @property
    def run_id(self) -> RunId: ...
    @property
    def invocation_id(self) -> InvocationId: ...
    @property
    def queue(self) -> str: ...


def queue_name(prefix: str, queue: str) -> str:
    return f"{prefix}.{queue}"


def wake_message(prefix: str, *, run_id: RunId, invocation_id: InvocationId, queue: str) -> dramatiq.Message[None]:
    return dramatiq.Message(
        queue_name=queue_name(prefix, queue),
        actor_name=ACTOR,
        args=(),
        kwargs={"run_id": run_id, "invocation_id": invocation_id, "queue": queue},
        options={},
    )


class Publisher:
    """Sends wake-ups from the event loop without waiting for the broker.

    The call that a wake-up belongs to is committed already: a broker that is down delays runs (workers look for queued
    rows every 2 s), it never refuses one. dramatiq's connections are per thread, hence threads of our own.
    """

    def __init__(self, broker: dramatiq.Broker, *, prefix: str) -> None:
        self._broker = broker
        self._prefix = prefix
        self._threads = ThreadPoolExecutor(PUBLISH_THREADS, thread_name_prefix="publish")
        self._pending = 0
        self._loop = asyncio.get_running_loop()

    def wake(self, *, run_id: RunId, invocation_id: InvocationId, queue: str) -> None:
        if self._pending >= PENDING_MAX:
            log.warning("wake-up dropped", run_id=run_id, invocation_id=invocation_id, reason="broker is slow")
            return
        message = wake_message(self._prefix, run_id=run_id, invocation_id=invocation_id, queue=queue)
        self._pending += 1
        self._threads.submit(self._send, message).add_done_callback(lambda sent: self._done(sent, message))

    def wake_all(self, runs: Iterable[Wakeable]) -> None:
        for run in runs:
            self.wake(run_id=run.run_id, invocation_id=run.invocation_id, queue=run.queue)

    def _send(self, message: dramatiq.Message[None]) -> None:
        self._broker.declare_queue(message.queue_name)
        self._broker.enqueue(message)

    def _done(self, sent: "Future[None]", message: dramatiq.Message[None]) -> None:
        error = sent.exception()
        if error is not None:
            log.warning("wake-up not sent", error=repr(error), **message.kwargs)
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._one_less)

    def _one_less(self) -> None:
        self._pending -= 1

    async def close(self) -> None:
        """Send what is pending, then end the threads."""
        await asyncio.to_thread(self._threads.shutdown)
