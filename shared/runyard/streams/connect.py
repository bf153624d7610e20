"""Connecting to the Redis of the frames, and limiting how long its answers may take."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.connection import HiredisRespSerializer
from redis.exceptions import AuthenticationError, RedisError, ResponseError

from runyard.backoff import Backoff
from runyard.errors import StoreUnavailable

CONNECTIONS_MAX = 16
"""A thousand readers that catch up at once queue for these, instead of opening a thousand sockets."""

BACKOFF_FIRST_S, BACKOFF_LONGEST_S = 0.05, 1.0
CONNECT_TIMEOUT_S = 2
REPLY_TIMEOUT_S = 5


def connect(url: str) -> Redis:
    """`redis://`, `rediss://` or `unix://` -> a client that connects with its first command; close it with `aclose()`.

    Nothing is retried inside: after a call without an answer only its sender knows whether a repeat is safe. A pooled
    connection that died idle is replaced before use. Every call stands inside `answered`. Blocking reads get
    connections of their own (`runyard.streams.subscription`).
    """
    options: dict[str, Any] = {
        "protocol": 2,  # RESP3 sends published messages as push types, which redis-py dispatches at a higher cost
        "legacy_responses": False,
        "decode_responses": False,
        "max_connections": CONNECTIONS_MAX,
        "timeout": REPLY_TIMEOUT_S,  # to wait for a free connection
        "socket_connect_timeout": CONNECT_TIMEOUT_S,
        # With a timeout here redis-py sends through asyncio.wait_for, which on Python 3.11 loses a cancellation that
        # meets the end of the send: a task told to stop would go on. `answered` has the timeout instead.
        "socket_timeout": None,
        "retry": Retry(NoBackoff(), 0),
    }
    if not url.startswith("unix://"):
        options["socket_keepalive"] = True
    pool = BlockingConnectionPool.from_url(url, **options)
    pool.connection_class = type("PackingConnection", (_PacksInC, pool.connection_class), {})
    client = Redis.from_pool(pool)
    # The entries as hiredis parsed them: redis-py would make a dict of each, which FrameReader would take apart again.
    client.set_response_callback("XRANGE", _as_parsed)
    return client


def redis_backoff() -> Backoff:
    """The waits between tries to reach Redis."""
    return Backoff(first_s=BACKOFF_FIRST_S, longest_s=BACKOFF_LONGEST_S)


@contextlib.asynccontextmanager
async def answered() -> AsyncIterator[None]:
    """Put around commands: Redis answers within `REPLY_TIMEOUT_S`, or this raises StoreUnavailable. What was sent may
    have been executed all the same. A refusal is told by its kind alone: callers read it too.
    """
    try:
        async with asyncio.timeout(REPLY_TIMEOUT_S):
            yield
    except (ResponseError, AuthenticationError) as error:
        raise StoreUnavailable(f"Redis refuses: {type(error).__name__}") from error
    except (RedisError, OSError) as error:
        raise StoreUnavailable("Redis does not answer") from error


async def redis_run_id(client: Redis) -> str:
    """An id that changes when the server restarts or is replaced: what was written under another id may be lost.

    Raises:
        StoreUnavailable: Redis does not answer.
    """
    async with answered():
        return str((await client.info("server"))["run_id"])


class _PacksInC:
    """Writes commands with hiredis, as redis-py's blocking connections do. Its asyncio connections write them in
    Python, at five times the cost, which is most of what a frame costs its writer.
    """

    _serializer = HiredisRespSerializer()

    def pack_command(self, *args: Any) -> list[bytes]:
        packed: list[bytes] = self._serializer.pack(*args)
        return packed


def _as_parsed(response: Any, **_options: Any) -> Any:
    return response
