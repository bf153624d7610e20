"""Both brokers behind one interface, with which tests look into queues and change them; and its fixture."""

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pika
import pytest
import redis
from pika.adapters.blocking_connection import BlockingChannel
from tests.integration.processes import GUARD_S
from tests.rabbitmq_servers import rabbitmq_server
from tests.redis_servers import redis_server
from tests.relay import Relay, relay_before

QUEUES = ("default", "bulk", "elsewhere")


def second(prefix: str) -> str:
    """The prefix of another system on the same broker."""
    return f"{prefix}-2"


@dataclass(frozen=True, kw_only=True)
class RedisSide:
    """One queue, as dramatiq keeps it: a list of ids, a hash of messages, a sorted set of the dead."""

    client: redis.Redis
    namespace: str
    name: str

    def ready(self) -> int:
        return int(self.client.llen(f"{self.namespace}:{self.name}"))

    def held(self) -> int:
        """Fetched by somebody, not acknowledged."""
        return int(self.client.hlen(f"{self.namespace}:{self.name}.msgs")) - self.ready()

    def is_empty(self) -> bool:
        return self.ready() == self.held() == self.dead() == 0

    def take_all(self) -> int:
        """Fetch and drop what can be fetched now; what a worker holds back cannot."""
        return len(self.client.lpop(f"{self.namespace}:{self.name}", 1_000_000) or [])

    def dead(self) -> int:
        return int(self.client.zcard(f"{self.namespace}:{self.name}.XQ"))

    def put(self, body: bytes) -> None:
        """A message of anybody's; `$ID` in it becomes the id that Redis keeps it under."""
        key = secrets.token_hex(8)
        self.client.hset(f"{self.namespace}:{self.name}.msgs", key, body.replace(b"$ID", key.encode()))
        self.client.rpush(f"{self.namespace}:{self.name}", key)

    def delete(self) -> None:
        """The queue with all that belongs to it."""
        for key in self.client.scan_iter(f"{self.namespace}:{self.name}*", count=1000):
            self.client.delete(key)


@dataclass(frozen=True, kw_only=True)
class RabbitmqSide:
    """The same queue on RabbitMQ. How many messages are held back only shows in that nobody else can take them."""

    connection: pika.BlockingConnection
    name: str

    def ready(self) -> int:
        return self._depth(self.name)

    def is_empty(self) -> bool:
        return self.ready() == self.dead() == 0

    def take_all(self) -> int:
        with self._channel() as channel:
            taken = 0
            while channel.basic_get(self.name, auto_ack=True)[0] is not None:
                taken += 1
            return taken

    def dead(self) -> int:
        return self._depth(f"{self.name}.XQ")

    def put(self, body: bytes) -> None:
        with self._channel() as channel:
            channel.confirm_delivery()
            channel.basic_publish("", self.name, body, mandatory=True)

    def delete(self) -> None:
        self.delete_queues(self.name)

    def delete_queues(self, *names: str) -> None:
        with self._channel() as channel:
            for name in names:
                for suffix in ("", ".DQ", ".XQ"):
                    channel.queue_delete(name + suffix)  # one that is not there may be deleted too

    def exists(self) -> bool:
        try:
            with self._channel() as channel:
                channel.queue_declare(self.name, passive=True)
        except pika.exceptions.ChannelClosedByBroker:
            return False
        return True

    def _depth(self, name: str) -> int:
        try:
            with self._channel() as channel:
                return int(channel.queue_declare(name, passive=True).method.message_count)
        except pika.exceptions.ChannelClosedByBroker:  # there is no such queue yet
            return 0

    @contextmanager
    def _channel(self) -> Iterator[BlockingChannel]:
        channel = self.connection.channel()
        yield channel
        channel.close()


@dataclass(frozen=True, kw_only=True)
class Broker:
    """A broker with a prefix of the test's own, reached through a relay."""

    name: str
    prefix: str
    relay: Relay
    side: RedisSide | RabbitmqSide

    @property
    def url(self) -> str:
        return self.relay.url


@contextmanager
def redis_side(url: str, prefix: str) -> Iterator[RedisSide]:
    """The queue `default`; every key of the prefix is gone afterwards."""
    with redis.Redis.from_url(url) as client:
        yield RedisSide(client=client, namespace=f"{prefix}:broker", name=f"{prefix}.default")
        for key in client.scan_iter(f"{prefix}*", count=1000):
            client.delete(key)


@contextmanager
def rabbitmq_side(url: str, prefix: str) -> Iterator[RabbitmqSide]:
    """The queue `default`; it and the others that tests use are gone afterwards."""
    parameters = pika.URLParameters(url)
    parameters.heartbeat = 0  # nobody answers them while the test waits
    connection = pika.BlockingConnection(parameters)
    try:
        side = RabbitmqSide(connection=connection, name=f"{prefix}.default")
        yield side
        side.delete_queues(*(f"{system}.{queue}" for system in (prefix, second(prefix)) for queue in QUEUES))
    finally:
        connection.close()


@contextmanager
def broker_of_ones_own(kind: str) -> Iterator[Broker]:
    prefix = f"runyard-test-{secrets.token_hex(6)}"
    url, opened = (redis_server(), redis_side) if kind == "redis" else (rabbitmq_server(), rabbitmq_side)
    with opened(url, prefix) as side, relay_before(url) as relay:
        yield Broker(name=kind, prefix=prefix, relay=relay, side=side)


@pytest.fixture(params=["redis", "rabbitmq"])
def broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    with broker_of_ones_own(request.param) as broker:
        yield broker


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads that look for their end every second, and wait for seconds before they try again, do so sooner. A sender
    that closes has the time to send what is pending.
    """
    monkeypatch.setattr("runyard.queue.wakeups.CLOSE_WAIT_S", GUARD_S)
    monkeypatch.setattr("runyard.queue.consumption.IDLE_TIMEOUT_MS", 100)
    monkeypatch.setattr("dramatiq.worker.CONSUMER_RESTART_DELAY_SECS", 0.1)
    monkeypatch.setattr("dramatiq.worker.POST_PROCESS_MESSAGE_RETRY_DELAY_SECS", 0.1)


on_redis = pytest.mark.parametrize("broker", ["redis"], indirect=True)
on_rabbitmq = pytest.mark.parametrize("broker", ["rabbitmq"], indirect=True)
"""For a test of what only one of the two can do."""
