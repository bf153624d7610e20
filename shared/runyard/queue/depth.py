"""How many messages a broker holds. It is asked over its own protocol, so no management plug-in is needed.

If the broker does not answer, `BrokerAwayError` is raised: an unknown number is never reported as 0.
"""

import asyncio
import contextlib
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pika
from dramatiq.common import dq_name, xq_name
from pika.adapters.blocking_connection import BlockingConnection

from runyard.queue.links import BrokerAwayError, broker_errors, rabbitmq_link, redis_link, redis_queue_key
from runyard.queue.rabbit_broker import is_rabbitmq
from runyard.queue.wakeups import queue_name

ANSWER_S = 1.0
"""How long a caller waits for the broker."""

LINK_S = 2.0
HEARTBEAT_S = 4
"""A broker that falls silent in the middle of an answer can hold up its thread for two heartbeats."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Messages:
    """How many messages a queue has. `ready`: not fetched yet; `delayed`: for later; `dead`: dead letters."""

    ready: int
    delayed: int
    dead: int


Measure = Callable[[Sequence[str]], dict[str, Messages]]


class BrokerDepth:
    """Asks in a thread of its own, one question at a time; belongs to the event loop."""

    def __init__(self, url: str, *, prefix: str) -> None:
        self._measure = _measure_of(url, prefix)
        self._asking: asyncio.Future[dict[str, Messages]] | None = None

    async def messages(self, queues: Sequence[str]) -> Mapping[str, Messages]:
        """By queue. A queue that is not declared holds nothing.

        Raises:
            BrokerAwayError: there was no answer within a second.
        """
        if self._asking is not None and not self._asking.done():
            raise BrokerAwayError("the broker does not answer")
        self._asking = _in_thread(lambda: self._measure(queues))
        with broker_errors():
            try:
                return await asyncio.wait_for(asyncio.shield(self._asking), ANSWER_S)
            except TimeoutError:
                raise BrokerAwayError("the broker does not answer") from None


def _in_thread(work: Callable[[], dict[str, Messages]]) -> asyncio.Future[dict[str, Messages]]:
    """Runs in a daemon thread, unlike those of an executor, so that a silent broker cannot keep the process alive."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[dict[str, Messages]] = loop.create_future()
    future.add_done_callback(lambda done: done.cancelled() or done.exception())  # nobody may be waiting any more

    def answer(set_answer: Callable[[Any], None], value: Any) -> None:
        if not future.done():
            set_answer(value)

    def run() -> None:
        set_answer: Callable[[Any], None]
        value: object
        try:
            set_answer, value = future.set_result, work()
        except Exception as error:  # noqa: BLE001 - it is raised where the answer is waited for
            set_answer, value = future.set_exception, error
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(answer, set_answer, value)

    threading.Thread(target=run, name="broker-depth", daemon=True).start()
    return future


def _measure_of(url: str, prefix: str) -> Measure:
    return _RabbitmqDepth(url, prefix) if is_rabbitmq(url) else _RedisDepth(url, prefix)


class _RabbitmqDepth:
    """Uses passive declarations, over a new connection each time: an idle one would have to answer heartbeats."""

    def __init__(self, url: str, prefix: str) -> None:
        self._url = url
        self._prefix = prefix

    def __call__(self, queues: Sequence[str]) -> dict[str, Messages]:
        with rabbitmq_link(self._url, timeout_s=LINK_S, heartbeat_s=HEARTBEAT_S) as connection:
            return {queue: self._of(connection, queue_name(self._prefix, queue)) for queue in queues}

    def _of(self, connection: BlockingConnection, name: str) -> Messages:
        return Messages(
            ready=_length(connection, name),
            delayed=_length(connection, dq_name(name)),
            dead=_length(connection, xq_name(name)),
        )


def _length(connection: BlockingConnection, name: str) -> int:
    channel = connection.channel()  # of its own: a queue that is not there closes it
    try:
        length = int(channel.queue_declare(name, passive=True).method.message_count)
    except pika.exceptions.ChannelClosedByBroker as error:
        if error.reply_code != pika.spec.NOT_FOUND:
            raise
        return 0
    channel.close()
    return length


class _RedisDepth:
    """Reads the keys in which dramatiq keeps a queue (`docs/brokers.md`)."""

    def __init__(self, url: str, prefix: str) -> None:
        self._url = url
        self._prefix = prefix

    def __call__(self, queues: Sequence[str]) -> dict[str, Messages]:
        names = [redis_queue_key(self._prefix, queue) for queue in queues]
        with redis_link(self._url, timeout_s=LINK_S) as client:
            pipeline = client.pipeline(transaction=False)
            for name in names:
                pipeline.llen(name)
                pipeline.hlen(f"{dq_name(name)}.msgs")
                pipeline.zcard(xq_name(name))
            answers = iter(pipeline.execute())
        return {queue: Messages(ready=next(answers), delayed=next(answers), dead=next(answers)) for queue in queues}
