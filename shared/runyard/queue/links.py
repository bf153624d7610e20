"""Short connections to a broker, to look at what it holds. They block."""

import contextlib
from collections.abc import Iterator

import pika
import redis
from pika.adapters.blocking_connection import BlockingConnection

from runyard.queue.rabbit_broker import PIKA_ERRORS
from runyard.queue.redis_broker import namespace
from runyard.queue.wakeups import queue_name


class BrokerAwayError(Exception):
    """The broker does not answer, or refuses. The message is for people and holds no address or password."""


@contextlib.contextmanager
def broker_errors() -> Iterator[None]:
    """The errors of either client as `BrokerAwayError`."""
    try:
        yield
    except (redis.RedisError, *PIKA_ERRORS) as error:
        raise BrokerAwayError(f"the broker cannot be asked: {type(error).__name__}") from error


@contextlib.contextmanager
def rabbitmq_link(url: str, *, timeout_s: float, heartbeat_s: int | None = None) -> Iterator[BlockingConnection]:
    """`heartbeat_s` None: the broker's own interval."""
    parameters = pika.URLParameters(url)
    parameters.socket_timeout = timeout_s
    parameters.stack_timeout = timeout_s
    parameters.blocked_connection_timeout = timeout_s
    parameters.connection_attempts = 1
    if heartbeat_s is not None:
        parameters.heartbeat = heartbeat_s
    connection = BlockingConnection(parameters)
    try:
        yield connection
    finally:
        with contextlib.suppress(*PIKA_ERRORS):
            connection.close()


def redis_link(url: str, *, timeout_s: float) -> redis.Redis:
    """Closed by `with`."""
    return redis.Redis.from_url(
        url, socket_timeout=timeout_s, socket_connect_timeout=timeout_s, protocol=2, legacy_responses=True
    )


def redis_queue_key(prefix: str, queue: str) -> str:
    """The key under which dramatiq keeps a queue's messages on Redis; see `docs/brokers.md`."""
    return f"{namespace(prefix)}:{queue_name(prefix, queue)}"
