"""dramatiq over Redis, with three changes: a message is fetched only into a reserved slot, fetching needs no polling,
and a message that was fetched but reached nobody is found again.

dramatiq's own consumer prefetches, which holds messages back from idle workers, and polls with naps of up to its
timeout. Here every enqueue publishes as well, and an idle consumer waits for that; a lost publish costs one timeout.
"""

import contextlib
import math
from collections.abc import Iterable, Iterator
from typing import Any, cast

import dramatiq
import redis
import structlog
from dramatiq.brokers.redis import RedisBroker, _RedisConsumer, _scripts
from dramatiq.errors import ConnectionClosed, DecodeError
from redis.backoff import ExponentialWithJitterBackoff
from redis.retry import Retry

from runyard.queue.slots import Slots
from runyard.queue.wakeups import ACTOR, received

MAINTENANCE_CHANCE = 50_000  # in a million commands: unacknowledged messages of dead workers come back within seconds
COMMAND_TIMEOUT_S = 5
RETRIED = (redis.ConnectionError, redis.ReadOnlyError)
ALL = math.inf
ID = "redis_message_id"  # the option that dramatiq's scripts know a message by

_WAKES = b"""
if ARGV[1] == "enqueue" then redis.call("PUBLISH", KEYS[1] .. ":" .. ARGV[3] .. ".wake", "") end
"""
"""Before dramatiq's one script for all that it does, and so in the same round trip (arguments: a command, a time, a
queue). Nobody hears it before the whole script is done.
"""

log = structlog.get_logger()


def namespace(prefix: str) -> str:
    """What every key of the broker begins with."""
    return f"{prefix}:broker"


def connect(
    url: str, *, prefix: str, middleware: list[dramatiq.Middleware], slots: Slots | None = None
) -> "WakingRedisBroker":
    """A broker for `redis://`, `rediss://` or `unix://`. Without `slots` it only sends."""
    client = redis.Redis.from_url(
        url,
        socket_timeout=COMMAND_TIMEOUT_S,
        socket_connect_timeout=COMMAND_TIMEOUT_S,
        # A server that does not answer is asked once: a fetch holds a slot for so long. One that became a replica has
        # done nothing: the link is closed, and the next one leads to the new primary.
        retry=Retry(ExponentialWithJitterBackoff(base=0.05, cap=0.5), 3, supported_errors=RETRIED),
        protocol=2,
        legacy_responses=True,
    )
    return WakingRedisBroker(client=client, namespace=namespace(prefix), middleware=middleware, slots=slots)


class WakingRedisBroker(RedisBroker):
    def __init__(
        self, *, client: redis.Redis, namespace: str, middleware: list[dramatiq.Middleware], slots: Slots | None
    ) -> None:
        super().__init__(  # type: ignore[no-untyped-call]  # dramatiq's Redis broker is not annotated
            client=client, namespace=namespace, maintenance_chance=MAINTENANCE_CHANCE, middleware=middleware
        )
        self.scripts["dispatch"] = client.register_script(_WAKES + _scripts["dispatch"])
        self.slots = slots
        self.in_hand: set[str] = set()
        """Ids of the messages that consumers have handed out and nobody has acknowledged yet."""

    @property
    def consumer_class(self) -> type["_SlotConsumer"]:
        return _SlotConsumer

    def wake_channel(self, queue_name: str) -> str:
        return f"{self.namespace}:{queue_name}.wake"

    def settle_strays(self, queue_name: str) -> None:
        """Take care of messages that Redis has as fetched by this process, but that nobody here has.

        The answer to a fetch may be lost with its connection: then the message goes back. Or the message cannot be
        read: then it is dead-lettered. Otherwise they would stay fetched for as long as the process lives.
        """
        booked = cast("set[bytes]", self.client.smembers(f"{self.namespace}:__acks__.{self.broker_id}.{queue_name}"))
        for stray in {key.decode() for key in booked} - self.in_hand:
            data = cast("bytes | None", self.client.hget(f"{self.namespace}:{queue_name}.msgs", stray))
            if data is not None and _read(data, queue_name) is None:
                log.warning("message unreadable, dead-lettered", queue=queue_name)
                self.do_nack(queue_name, stray)
            else:
                self.do_requeue(queue_name, stray)

    def keep_alive(self) -> None:
        """Nothing to do: connections belong to no thread, and the pool replaces a dead one when it is taken."""

    def hang_up(self) -> None:
        """Nothing to do, for the same reason."""

    def close(self) -> None:
        self.client.close()


class _SlotConsumer(_RedisConsumer):
    """Hands out one message for each reserved slot; whoever runs the message's actor then owns the slot.

    `_due`: how often to look for a message before it waits for the next publish. After a look that found none, each
    message that comes has one.
    """

    broker: WakingRedisBroker

    def __init__(self, broker: WakingRedisBroker, queue_name: str, prefetch: int, timeout: int) -> None:
        super().__init__(broker, queue_name, prefetch, timeout)  # type: ignore[no-untyped-call]  # as above
        assert broker.slots is not None, "a broker that consumes needs slots"
        self._slots = broker.slots
        self._due = ALL
        self._wakes = broker.client.pubsub(ignore_subscribe_messages=True)
        with _translated():
            self._wakes.subscribe(broker.wake_channel(queue_name))

    def __next__(self) -> dramatiq.MessageProxy | None:
        timeout_s = self.timeout / 1000
        with _translated():
            if not self._due:
                self._due = self._heard(timeout_s)
        if not self._slots.reserve(timeout_s):
            return None
        with _translated():
            message = self._fetch()
        self._due = 0 if message is None else self._due - 1
        return message

    def _heard(self, timeout_s: float) -> float:
        """How many messages were published, waiting for one; `ALL` if none was: a publish may be lost."""
        if self._wakes.get_message(timeout=timeout_s) is None:
            self.broker.settle_strays(self.queue_name)
            return ALL
        count = 1
        while self._wakes.get_message(timeout=0) is not None:
            count += 1
        return count

    def _fetch(self) -> dramatiq.MessageProxy | None:
        owned = False
        try:
            fetched = self.broker.do_fetch(self.queue_name, 1)
            message = _read(fetched[0], self.queue_name) if fetched and fetched[0] is not None else None
            if message is None:
                return None
            self.broker.in_hand.add(message.options[ID])
            owned = message.actor_name == ACTOR  # any other is dead-lettered without running
            return dramatiq.MessageProxy(message)
        finally:
            if not owned:
                self._slots.release()

    def ack(self, message: dramatiq.MessageProxy) -> None:
        with _translated():
            self.broker.do_ack(self.queue_name, message.options[ID])
        self.broker.in_hand.discard(message.options[ID])

    def nack(self, message: dramatiq.MessageProxy) -> None:
        with _translated():
            self.broker.do_nack(self.queue_name, message.options[ID])
        self.broker.in_hand.discard(message.options[ID])

    def requeue(self, messages: Iterable[dramatiq.MessageProxy]) -> None:
        with _translated():
            super().requeue(messages)  # type: ignore[no-untyped-call]  # as above

    def close(self) -> None:
        self._wakes.close()


def _read(data: bytes, queue_name: str) -> dramatiq.Message[Any] | None:
    """None: it is no message, or not one of dramatiq's Redis broker."""
    try:
        message = received(data, queue_name=queue_name)
    except DecodeError:
        return None
    return message if ID in message.options else None


@contextlib.contextmanager
def _translated() -> Iterator[None]:
    """Raise Redis's errors as the one for which dramatiq restarts a consumer and repeats an acknowledgement."""
    try:
        yield
    except redis.RedisError as error:
        raise ConnectionClosed(error) from error  # type: ignore[no-untyped-call]  # as above
