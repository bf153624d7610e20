"""dramatiq over RabbitMQ, with a consumer of our own: it takes deliveries only while a slot is free, gives back what it
cannot use, and acknowledges only on the connection that a message came on.

dramatiq's consumer prefetches, which holds messages back from idle workers, and acknowledges by delivery tag alone:
tags begin at 1 again with each connection, so after a reconnect a message that ends could acknowledge another one.
"""

import contextlib
import functools
import threading
from collections.abc import Callable, Iterator
from typing import Any

import dramatiq
import pika
import structlog
from dramatiq.brokers.rabbitmq import RabbitmqBroker
from dramatiq.errors import ConnectionClosed, DecodeError
from pika.adapters.blocking_connection import BlockingChannel

from runyard.queue.slots import Slots
from runyard.queue.wakeups import ACTOR, received

HEARTBEAT_S = 15
BLOCKED_TIMEOUT_S = 10
FULL_POLL_S = 0.1
"""While all slots are taken: how often heartbeats and acknowledgements are handled. A freed slot is noticed at once."""

PIKA_ERRORS = (pika.exceptions.AMQPError, AssertionError, OSError)
"""It asserts that a closed connection is open, and lets the errors of looking up a host's name pass."""


log = structlog.get_logger()


def is_rabbitmq(url: str) -> bool:
    return url.startswith(("amqp://", "amqps://"))


def connect(url: str, *, middleware: list[dramatiq.Middleware], slots: Slots | None = None) -> "SlotRabbitmqBroker":
    """A broker for `amqp://` or `amqps://`. Without `slots` it only sends."""
    return SlotRabbitmqBroker(url=url, middleware=middleware, slots=slots)


class SlotRabbitmqBroker(RabbitmqBroker):
    """Each thread that sends has a connection that no other thread may touch: it must `hang_up` when it ends."""

    def __init__(self, *, url: str, middleware: list[dramatiq.Middleware], slots: Slots | None) -> None:
        # Without confirms a deleted queue loses messages silently.
        super().__init__(url=url, confirm_delivery=True, middleware=middleware)
        parameters = pika.URLParameters(url)
        parameters.heartbeat = HEARTBEAT_S
        parameters.blocked_connection_timeout = BLOCKED_TIMEOUT_S
        self.parameters = parameters
        self.slots = slots

    def consume(self, queue_name: str, prefetch: int = 1, timeout: int = 5000) -> "_SlotConsumer":
        self.queues_pending.add(queue_name)  # declared with every new consumer: it may have been deleted
        try:
            with _translated():
                self.declare_queue(queue_name, ensure=True)
        finally:
            self.hang_up()  # the consumer has a connection of its own; nobody would answer the heartbeats of this one
        return _SlotConsumer(self, queue_name, prefetch, timeout)

    def keep_alive(self) -> None:
        """Answer the heartbeats of the calling thread's connection; a dead connection is dropped."""
        connection = getattr(self.state, "connection", None)
        if connection is not None:
            try:
                connection.process_data_events()
            except PIKA_ERRORS:
                self.hang_up()

    def hang_up(self) -> None:
        """Close the calling thread's connection, if it has one."""
        del self.connection

    def close(self) -> None:
        self.hang_up()


class _Delivery(dramatiq.MessageProxy):
    """A message that knows the consumer, and so the connection, over which it came."""

    def __init__(self, message: dramatiq.Message[Any], tag: int, consumer: "_SlotConsumer") -> None:
        super().__init__(message)
        self.tag = tag
        self.consumer = consumer


class _SlotConsumer(dramatiq.Consumer):
    """Belongs to its consumer thread; the threads that run messages call `ack` and `nack`.

    Whoever runs the message's actor owns the slot that was reserved for it.
    """

    def __init__(self, broker: SlotRabbitmqBroker, queue_name: str, prefetch: int, timeout: int) -> None:
        assert broker.slots is not None, "a broker that consumes needs slots"
        self._slots = broker.slots
        self._queue_name = queue_name
        self._timeout_s = timeout / 1000
        self._deliveries: Iterator[tuple[Any, Any, bytes]] | None = None
        with _translated():
            self._connection = pika.BlockingConnection(parameters=broker.parameters)
            self._channel = self._connection.channel()
            self._channel.basic_qos(prefetch_count=prefetch)

    def __next__(self) -> dramatiq.MessageProxy | None:
        with _translated():
            if not self._slots.available():
                self._pause()
                self._connection.process_data_events()
                self._slots.available(FULL_POLL_S)
                return None
            if self._deliveries is None:
                self._deliveries = self._channel.consume(self._queue_name, inactivity_timeout=self._timeout_s)
            method, _properties, body = next(self._deliveries)
            if method is None:
                return None
            return self._take(method.delivery_tag, body)

    def _take(self, tag: int, body: bytes) -> dramatiq.MessageProxy | None:
        try:
            message = received(body, queue_name=self._queue_name)
        except DecodeError:
            log.warning("message unreadable, dead-lettered", queue=self._queue_name)
            self._channel.basic_nack(tag, requeue=False)
            return None
        if message.actor_name == ACTOR and not self._slots.reserve(0):
            self._channel.basic_nack(tag, requeue=True)
            self._pause()
            return None
        return _Delivery(message, tag, self)  # one for another actor is dead-lettered without running

    def _pause(self) -> None:
        """Take no deliveries; those on their way go back to the queue."""
        if self._deliveries is not None:
            self._deliveries = None
            self._channel.cancel()

    def ack(self, message: dramatiq.MessageProxy) -> None:
        assert isinstance(message, _Delivery)
        message.consumer.answer(functools.partial(BlockingChannel.basic_ack, delivery_tag=message.tag))

    def nack(self, message: dramatiq.MessageProxy) -> None:
        assert isinstance(message, _Delivery)
        message.consumer.answer(functools.partial(BlockingChannel.basic_nack, delivery_tag=message.tag, requeue=False))

    def answer(self, answer: Callable[[BlockingChannel], None]) -> None:
        """Answer a message that came over this consumer. Once the connection is gone, RabbitMQ has the message back."""
        try:
            self._connection.add_callback_threadsafe(functools.partial(answer, self._channel))
        except pika.exceptions.AMQPError:
            log.info("acknowledgement dropped: its connection is gone", queue=self._queue_name)

    def requeue(self, messages: Any) -> None:
        """RabbitMQ does so itself when the connection closes."""

    def close(self) -> None:
        with _translated():
            answered = threading.Event()
            self._connection.add_callback_threadsafe(answered.set)
            while not answered.is_set():
                self._connection.sleep(0)
            self._channel.close()
            self._connection.close()


@contextlib.contextmanager
def _translated() -> Iterator[None]:
    """Raise Pika's errors as the one for which dramatiq restarts a consumer."""
    try:
        yield
    except PIKA_ERRORS as error:
        raise ConnectionClosed(error) from error  # type: ignore[no-untyped-call]  # not annotated in dramatiq
