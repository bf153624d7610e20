"""Consuming in one process: dramatiq's threads fetch into free slots and run the one actor there is."""

from collections.abc import Callable, Sequence

import dramatiq
from dramatiq.worker import Worker

from runyard.queue.wakeups import ACTOR, queue_name

THREADS = 4
"""Claims under way at once. A run holds no thread: its message is acknowledged when it is claimed."""

IDLE_TIMEOUT_MS = 1_000
STOP_TIMEOUT_MS = 10_000


class _Worker(Worker):
    """dramatiq's worker without consumers for delayed messages, of which there are none."""

    def _add_consumer(self, queue_name: str, *, delay: bool = False) -> None:
        if not delay:
            super()._add_consumer(queue_name, delay=delay)


class Consumption:
    """Runs `on_wake` in a thread for each message; the message is acknowledged when it returns.

    `on_wake` owns the slot that was reserved for the message and must not raise for what a later claim mends.
    """

    def __init__(
        self, broker: dramatiq.Broker, *, prefix: str, queues: Sequence[str], on_wake: Callable[[], None]
    ) -> None:
        def wake(**_message: str) -> None:
            on_wake()

        names = [queue_name(prefix, queue) for queue in queues]
        broker.declare_actor(
            dramatiq.Actor(wake, broker=broker, actor_name=ACTOR, queue_name=names[0], priority=0, options={})
        )
        for name in names:
            broker.declare_queue(name)
        self._worker = _Worker(broker, worker_threads=THREADS, worker_timeout=IDLE_TIMEOUT_MS)
        self._worker.queue_prefetch = 1

    def start(self) -> None:
        self._worker.start()

    def stop(self) -> None:
        """Stop fetching, finish what is being claimed; blocks for at most 10 s. Close the slots first."""
        self._worker.stop(STOP_TIMEOUT_MS)
