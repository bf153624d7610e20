"""dramatiq over Redis, with two changes: a message is fetched only into a reserved slot, and fetching needs no polling.

dramatiq's own consumer prefetches, which holds messages back from idle workers, and polls with naps of up to its
timeout. Here every enqueue is followed by a PUBLISH, on which an idle consumer waits; a lost publish costs one timeout.
"""

import contextlib
from collections.abc import Iterator
from typing import Any

import dramatiq
import redis
from dramatiq.brokers.redis import RedisBroker, _RedisConsumer
from dramatiq.errors import ConnectionClosed
from redis.backoff import ExponentialWithJitterBackoff
from redis.retry import Retry

from runyard.queue.slots import Slots
from runyard.queue.wakeups import ACTOR

MAINTENANCE_CHANCE = 50_000  # in a million commands: unacknowledged messages of dead workers come back within seconds
COMMAND_TIMEOUT_S = 5


def connect(
    url: str, *, namespace: str, middleware: list[dramatiq.Middleware], slots: Slots | None = None
) -> "WakingRedisBroker":
    """A broker for `redis://`, `rediss://` or `unix://`. Without `slots` it only sends."""
    client = redis.Redis.from_url(
        url,
        socket_timeout=COMMAND_TIMEOUT_S,
        socket_connect_timeout=COMMAND_TIMEOUT_S,
        retry=Retry(ExponentialWithJitterBackoff(base=0.05, cap=0.5), 3),
        protocol=2,
        legacy_responses=True,
    )
    return WakingRedisBroker(client=client, namespace=namespace, middleware=middleware, slots=slots)


class WakingRedisBroker(RedisBroker):
    def __init__(
        self, *, client: redis.Redis, namespace: str, middleware: list[dramatiq.Middleware], slots: Slots | None
    ) -> None:
        super().__init__(  # type: ignore[no-untyped-call]  # dramatiq's Redis broker is not annotated
            client=client, namespace=namespace, maintenance_chance=MAINTENANCE_CHANCE, middleware=middleware
        )
        self.slots = slots

    @property
    def consumer_class(self) -> type["_SlotConsumer"]:
        return _SlotConsumer

    def enqueue(self, message: dramatiq.Message[Any], *, delay: int | None = None) -> dramatiq.Message[Any]:
        sent: dramatiq.Message[Any] = super().enqueue(message, delay=delay)
        self.client.publish(self.wake_channel(message.queue_name), b"")
        return sent

    def wake_channel(self, queue_name: str) -> str:
        return f"{self.namespace}:{queue_name}.wake"

    def close(self) -> None:
        self.client.close()


class _SlotConsumer(_RedisConsumer):
    """Hands out one message per reserved slot; whoever runs the message's actor owns the slot from then on."""

    broker: WakingRedisBroker

    def __init__(self, broker: WakingRedisBroker, queue_name: str, prefetch: int, timeout: int) -> None:
        super().__init__(broker, queue_name, prefetch, timeout)  # type: ignore[no-untyped-call]  # as above
        assert broker.slots is not None, "a broker that consumes needs slots"
        self._slots = broker.slots
        self._wakes = broker.client.pubsub(ignore_subscribe_messages=True)
        with _translated():
            self._wakes.subscribe(broker.wake_channel(queue_name))

    def __next__(self) -> dramatiq.MessageProxy | None:
        timeout_s = self.timeout / 1000
        if not self._slots.reserve(timeout_s):
            return None
        message = self._fetch()
        if message is None:
            with _translated():
                self._wakes.get_message(timeout=timeout_s)
                while self._wakes.get_message(timeout=0) is not None:
                    pass
        return message

    def _fetch(self) -> dramatiq.MessageProxy | None:
        owned = False
        try:
            with _translated():
                fetched = self.broker.do_fetch(self.queue_name, 1)
            if not fetched or fetched[0] is None:
                return None
            message = dramatiq.Message.decode(fetched[0])
            self.queued_message_ids.add(message.message_id)
            owned = message.actor_name == ACTOR  # any other is dead-lettered without running
            return dramatiq.MessageProxy(message)
        finally:
            if not owned:
                self._slots.release()

    def close(self) -> None:
        self._wakes.close()


@contextlib.contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except (redis.ConnectionError, redis.TimeoutError) as error:
        raise ConnectionClosed(error) from error  # type: ignore[no-untyped-call]  # as above
