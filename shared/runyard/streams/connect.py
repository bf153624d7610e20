"""The one way to a Redis client for frames."""

from typing import Any

from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from runyard.errors import StoreUnavailable

CONNECTIONS_MAX = 16
"""A thousand readers that catch up at once queue for these instead of opening a thousand sockets."""

CONNECT_TIMEOUT_S = 2
REPLY_TIMEOUT_S = 5


def connect(url: str) -> Redis:
    """`redis://`, `rediss://` or `unix://` -> a client that connects with its first command; close it with `aclose()`.

    Nothing is retried inside: after a call without an answer only its sender knows whether a repeat is safe. A pooled
    connection that died idle is replaced before use. Blocking reads get connections of their own
    (`runyard.streams.subscription`): here they would run into the reply timeout.
    """
    options: dict[str, Any] = {
        "protocol": 2,  # RESP3 sends published messages as push types, which redis-py dispatches at a higher cost
        "legacy_responses": False,
        "decode_responses": False,
        "max_connections": CONNECTIONS_MAX,
        "timeout": REPLY_TIMEOUT_S,  # to wait for a free connection
        "socket_connect_timeout": CONNECT_TIMEOUT_S,
        "socket_timeout": REPLY_TIMEOUT_S,
        "retry": Retry(NoBackoff(), 0),
    }
    if not url.startswith("unix://"):
        options["socket_keepalive"] = True
    client = Redis.from_pool(BlockingConnectionPool.from_url(url, **options))
    # The entries as hiredis parsed them: redis-py would make a dict of each, which FrameReader would take apart again.
    client.set_response_callback("XRANGE", _as_parsed)
    return client


async def redis_run_id(client: Redis) -> str:
    """Changes when the server restarts, and with the server: what was written under another one may be lost.

    Raises:
        StoreUnavailable
    """
    try:
        server = await client.info("server")
    except (RedisError, OSError) as error:
        raise StoreUnavailable("Redis does not answer") from error
    return str(server["run_id"])


def _as_parsed(response: Any, **_options: Any) -> Any:
    return response
