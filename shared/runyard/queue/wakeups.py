"""The only kind of message, a wake-up, and its publisher.

Queue `<prefix>.<queue>`, actor `wake`, `kwargs {"run_id", "invocation_id", "queue"}` (for traces: a worker claims the
best queued run, whichever message woke it).
"""

import asyncio
import contextlib
import dataclasses
import queue
import threading
import time
from collections.abc import Iterable
from typing import Any, Protocol

import dramatiq
import structlog
from dramatiq.errors import DecodeError

from runyard.ids import InvocationId, RunId
from runyard.metrics import WAKE_UPS_UNSENT

ACTOR = "wake"
PUBLISH_THREADS = 2
PENDING_MAX = 10_000
KEEP_ALIVE_S = 3.0  # a fifth of the heartbeat's interval on RabbitMQ
CLOSE_WAIT_S = 5.0

log = structlog.get_logger()


class Wakeable(Protocol):
    """A queued run (`runyard.db.claims.GivenBack`)."""

    @property
    def run_id(self) -> RunId: ...
    @property
    def invocation_id(self) -> InvocationId: ...
    @property
    def queue(self) -> str: ...


class SendingBroker(Protocol):
    """What a sender needs of a broker. All of it is called from the threads that send."""

    def declare_queue(self, queue_name: str) -> None: ...
    def enqueue(self, message: dramatiq.Message[Any]) -> dramatiq.Message[Any]: ...

    def keep_alive(self) -> None:
        """Keep the calling thread's connection usable while it sends nothing."""
        ...

    def hang_up(self) -> None:
        """Close the calling thread's connection."""
        ...


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


def received(data: bytes, *, queue_name: str) -> dramatiq.Message[Any]:
    """Decode a message, with the name of the queue that it came from and without a delay, whatever it says itself.

    An operator may have moved it here from another queue, and a message with the name of a queue that is not consumed
    ends dramatiq's threads.

    Raises:
        dramatiq.errors.DecodeError: it cannot be read.
    """
    message = dramatiq.Message.decode(data)
    if not isinstance(message.kwargs, dict) or not isinstance(message.options, dict):
        raise DecodeError("JSON, but no message", data, None)
    options = {name: value for name, value in message.options.items() if name != "eta"}
    return dataclasses.replace(message, queue_name=queue_name, options=options)


class Publisher:
    """Sends wake-ups in the background. `wake` may be called from any thread.

    A wake-up is sent after its call was committed. If the broker is down, runs only begin later, since workers look for
    queued rows every 2 s. dramatiq's connections belong to threads, so this has threads of its own. They are daemons: a
    broker that hangs cannot keep the process alive.
    """

    def __init__(self, broker: SendingBroker, *, prefix: str) -> None:
        self._broker = broker
        self._prefix = prefix
        self._pending: queue.SimpleQueue[dramatiq.Message[None] | None] = queue.SimpleQueue()
        self._closed = False
        self._threads = [
            threading.Thread(target=self._send_all, name=f"publish-{number}", daemon=True)
            for number in range(PUBLISH_THREADS)
        ]
        for thread in self._threads:
            thread.start()

    def wake(self, *, run_id: RunId, invocation_id: InvocationId, queue: str) -> None:
        if self._closed or self._pending.qsize() >= PENDING_MAX:
            reason = "publisher is closed" if self._closed else "broker is slow"
            WAKE_UPS_UNSENT.inc()
            log.warning("wake-up dropped", run_id=run_id, invocation_id=invocation_id, reason=reason)
            return
        self._pending.put(wake_message(self._prefix, run_id=run_id, invocation_id=invocation_id, queue=queue))

    def wake_all(self, runs: Iterable[Wakeable]) -> None:
        for run in runs:
            self.wake(run_id=run.run_id, invocation_id=run.invocation_id, queue=run.queue)

    def _send_all(self) -> None:
        while True:
            try:
                message = self._pending.get(timeout=KEEP_ALIVE_S)
            except queue.Empty:
                self._broker.keep_alive()
                continue
            if message is None:
                break
            self._send(message)
        self._broker.hang_up()

    def _send(self, message: dramatiq.Message[None]) -> None:
        try:
            self._broker.declare_queue(message.queue_name)
            self._broker.enqueue(message)
        except Exception as error:  # noqa: BLE001 - whatever a client raises, the thread goes on
            WAKE_UPS_UNSENT.inc()
            log.warning("wake-up not sent", error=repr(error), **message.kwargs)

    async def close(self) -> None:
        """Send what is pending, for at most 5 s. Workers find the other runs by themselves."""
        self._closed = True
        for _ in self._threads:
            self._pending.put(None)
        await asyncio.to_thread(self._join)
        if left := self._take_back():
            WAKE_UPS_UNSENT.inc(left)
            log.warning("wake-ups not sent", count=left, reason="broker does not answer")

    def _join(self) -> None:
        deadline = time.monotonic() + CLOSE_WAIT_S
        for thread in self._threads:
            thread.join(max(0, deadline - time.monotonic()))

    def _take_back(self) -> int:
        """Remove the messages that no thread has begun to send, and return their number. The threads still end."""
        left = 0
        with contextlib.suppress(queue.Empty):
            while True:
                left += self._pending.get_nowait() is not None
        for _ in self._threads:
            self._pending.put(None)
        return left
