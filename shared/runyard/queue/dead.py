"""Dead letters: listing them, putting them back, deleting them. All of it blocks.

A dead letter was a wake-up, or a message that is not ours. No run depends on one.
"""

import contextlib
import hashlib
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Any, Protocol, cast

import pika
import redis
from dramatiq.common import xq_name
from dramatiq.errors import DecodeError
from pika.adapters.blocking_connection import BlockingChannel, BlockingConnection

from runyard.queue.links import broker_errors, rabbitmq_link, redis_link, redis_queue_key
from runyard.queue.rabbit_broker import is_rabbitmq
from runyard.queue.wakeups import queue_name, received

LINK_S = 5
LISTED_MAX = 1_000
BODIES_A_CALL = 100


@dataclass(frozen=True, kw_only=True, slots=True)
class DeadLetter:
    """`since_ms`: when it became one, in epoch milliseconds. `actor` None: it cannot be read. `run_id`: the run for
    which a wake-up was sent.
    """

    id: str
    queue: str
    since_ms: int | None
    actor: str | None
    run_id: str | None
    size_bytes: int


class DeadLetters(Protocol):
    """Queues are named as in `RUNYARD_QUEUES`; one that does not exist holds nothing. `ids` None: all."""

    def listed(self, queue: str) -> list[DeadLetter]:
        """The oldest first, at most 1,000."""
        ...

    def requeue(self, queue: str, ids: Collection[str] | None) -> int:
        """Put back those that can be read; returns how many."""
        ...

    def drop(self, queue: str, ids: Collection[str] | None) -> int: ...


@contextlib.contextmanager
def dead_letters(url: str, *, prefix: str) -> Iterator[DeadLetters]:
    """The dead letters of a broker, over a link that lasts as long as the block.

    Raises:
        BrokerAwayError: the broker does not answer.
    """
    with broker_errors():
        if is_rabbitmq(url):
            with rabbitmq_link(url, timeout_s=LINK_S) as connection:
                yield _RabbitmqDeadLetters(connection, prefix)
        else:
            with redis_link(url, timeout_s=LINK_S) as client:
                yield _RedisDeadLetters(client, prefix)


def _letter(data: bytes, *, queue: str, key: str | None, since_ms: int | None) -> DeadLetter:
    """`key`: the id by which the broker knows it, if it has one."""
    actor, run_id, own_id = None, None, hashlib.sha256(data).hexdigest()[:16]
    with contextlib.suppress(DecodeError):
        message = received(data, queue_name=queue)
        actor, own_id = str(message.actor_name), str(message.message_id)
        run_id = message.kwargs.get("run_id")
    return DeadLetter(
        id=key or own_id,
        queue=queue,
        since_ms=since_ms,
        actor=actor,
        run_id=run_id if isinstance(run_id, str) else None,
        size_bytes=len(data),
    )


_REQUEUE = """
local data = redis.call('HGET', KEYS[2], ARGV[1])
if redis.call('ZREM', KEYS[1], ARGV[1]) == 0 or not data then return 0 end
redis.call('HDEL', KEYS[2], ARGV[1])
redis.call('HSET', KEYS[4], ARGV[1], data)
redis.call('RPUSH', KEYS[3], ARGV[1])
redis.call('PUBLISH', KEYS[3] .. '.wake', '')
return 1
"""


class _RedisDeadLetters:
    """A sorted set of ids by the time of their death, and a hash of messages; see `docs/brokers.md`."""

    def __init__(self, client: redis.Redis, prefix: str) -> None:
        self._client = client
        self._prefix = prefix
        self._requeue = client.register_script(_REQUEUE)

    def listed(self, queue: str) -> list[DeadLetter]:
        return list(self._read(queue, LISTED_MAX))

    def requeue(self, queue: str, ids: Collection[str] | None) -> int:
        name, dead = self._keys(queue)
        keys = [dead, f"{dead}.msgs", name, f"{name}.msgs"]
        return sum(int(self._requeue(keys, [key])) for key in self._chosen(queue, ids, readable=True))

    def drop(self, queue: str, ids: Collection[str] | None) -> int:
        _, dead = self._keys(queue)
        dropped = 0
        for key in self._chosen(queue, ids, readable=False):
            pipeline = self._client.pipeline(transaction=True)
            pipeline.zrem(dead, key)
            pipeline.hdel(f"{dead}.msgs", key)
            dropped += pipeline.execute()[0]
        return dropped

    def _keys(self, queue: str) -> tuple[str, str]:
        name = redis_queue_key(self._prefix, queue)
        return name, xq_name(name)

    def _chosen(self, queue: str, ids: Collection[str] | None, *, readable: bool) -> list[str]:
        return [
            letter.id
            for letter in self._read(queue, None)
            if (ids is None or letter.id in ids) and (letter.actor is not None or not readable)
        ]

    def _read(self, queue: str, limit: int | None) -> Iterator[DeadLetter]:
        _, dead = self._keys(queue)
        last = -1 if limit is None else limit - 1
        found = cast("list[tuple[bytes, float]]", self._client.zrange(dead, 0, last, withscores=True))
        for at in range(0, len(found), BODIES_A_CALL):
            page = found[at : at + BODIES_A_CALL]
            bodies = cast("list[bytes | None]", self._client.hmget(f"{dead}.msgs", [key for key, _ in page]))
            for (key, died_ms), body in zip(page, bodies, strict=True):
                yield _letter(body or b"", queue=queue, key=key.decode(errors="replace"), since_ms=int(died_ms))


class _RabbitmqDeadLetters:
    """A queue without consumers. What is fetched but not acknowledged goes back to its place when the
    channel closes.
    """

    def __init__(self, connection: BlockingConnection, prefix: str) -> None:
        self._connection = connection
        self._prefix = prefix

    def listed(self, queue: str) -> list[DeadLetter]:
        with self._channel() as channel:
            fetched = self._fetched(channel, queue, LISTED_MAX)
            return [letter for _tag, letter, _body in fetched]

    def requeue(self, queue: str, ids: Collection[str] | None) -> int:
        def put_back(channel: BlockingChannel, letter: DeadLetter, body: bytes) -> bool:
            if letter.actor is None:
                return False
            properties = pika.BasicProperties(delivery_mode=pika.DeliveryMode.Persistent)
            channel.basic_publish("", queue_name(self._prefix, queue), body, properties, mandatory=True)
            return True

        return self._take(queue, ids, put_back)

    def drop(self, queue: str, ids: Collection[str] | None) -> int:
        return self._take(queue, ids, lambda _channel, _letter, _body: True)

    def _take(
        self, queue: str, ids: Collection[str] | None, settle: Callable[[BlockingChannel, DeadLetter, bytes], bool]
    ) -> int:
        """Remove those for which `settle` returns true. Each is acknowledged after that, so that none is lost."""
        taken = 0
        with self._channel() as channel:
            channel.confirm_delivery()
            for tag, letter, body in self._fetched(channel, queue, None):
                if (ids is None or letter.id in ids) and settle(channel, letter, body):
                    channel.basic_ack(tag)
                    taken += 1
        return taken

    def _fetched(
        self, channel: BlockingChannel, queue: str, limit: int | None
    ) -> Iterator[tuple[int, DeadLetter, bytes]]:
        """The messages that are there now, each once: one that is put back may come again at once."""
        name = xq_name(queue_name(self._prefix, queue))
        try:
            there = channel.queue_declare(name, passive=True).method.message_count
        except pika.exceptions.ChannelClosedByBroker as error:
            if error.reply_code != pika.spec.NOT_FOUND:
                raise
            return
        for _ in range(there if limit is None else min(there, limit)):
            method, properties, body = channel.basic_get(name)
            if method is None:
                return
            yield method.delivery_tag, _letter(body, queue=queue, key=None, since_ms=_died_ms(properties)), body

    @contextlib.contextmanager
    def _channel(self) -> Iterator[BlockingChannel]:
        channel = self._connection.channel()
        yield channel
        if channel.is_open:
            channel.close()


def _died_ms(properties: Any) -> int | None:
    """https://www.rabbitmq.com/docs/dlx#effects: the newest death comes first. Its time has no zone, and is UTC."""
    deaths = (properties.headers or {}).get("x-death") or [{}]
    at = deaths[0].get("time")
    return None if at is None else int(at.timestamp() * 1000)
