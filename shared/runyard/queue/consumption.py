"""Consuming messages: dramatiq's threads fetch them into free slots and run the only actor."""

import logging
import threading
from collections.abc import Callable, Sequence

import dramatiq
import structlog
from dramatiq.worker import Worker

from runyard.queue.wakeups import ACTOR, queue_name

THREADS = 4
"""How many claims may be under way at once. A run holds no thread: its message is acknowledged once it is claimed."""

IDLE_TIMEOUT_MS = 250
"""How long an idle thread waits before it looks whether to stop; on Redis also the most that a lost wake-up costs."""
STOP_TIMEOUT_S = 5.0

log = structlog.get_logger()


class _Worker(Worker):
    """dramatiq's worker without consumers for delayed messages, since there are none."""

    def _add_consumer(self, queue_name: str, *, delay: bool = False) -> None:
        if not delay:
            logging.getLogger(f"dramatiq.worker.ConsumerThread({queue_name})").addFilter(_moderate)
            super()._add_consumer(queue_name, delay=delay)


def _moderate(record: logging.LogRecord) -> bool:
    """Log a lost broker as a warning, not as critical as dramatiq does: it delays runs by 2 s at most."""
    if str(record.msg).startswith("Consumer encountered a connection error"):
        record.levelno, record.levelname = logging.WARNING, "WARNING"
    return True


class Consumption:
    """Runs `on_wake` in a thread for each message, which is acknowledged when it returns.

    `on_wake` owns the slot that was reserved for the message, even if it raises. If it raises, the message becomes a
    dead letter, so it must not raise for errors that pass.
    """

    def __init__(
        self, broker: dramatiq.Broker, *, prefix: str, queues: Sequence[str], on_wake: Callable[[], None]
    ) -> None:
        def wake(*_args: object, **_kwargs: object) -> None:  # a message's content is for traces only
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
        """Stop fetching, and finish the claims under way; blocks for at most 5 s. Close the slots first."""
        # dramatiq limits how long it waits for its threads, but not for a broker that does not answer.
        stopping = threading.Thread(
            target=self._worker.stop, args=(int(STOP_TIMEOUT_S * 1000),), name="consumption-stop", daemon=True
        )
        stopping.start()
        stopping.join(STOP_TIMEOUT_S)
        if stopping.is_alive():
            log.warning("consumers left behind", reason="broker or claims do not answer")
