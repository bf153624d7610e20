"""A stored stream read page by page and joined: no HTTP, no frames to encode."""

import time
from collections.abc import Awaitable, Callable
from typing import Any

from redis.asyncio import Redis

from runyard.streams.keys import StreamKeys

PAGE = 500


async def read_stream(client: Redis, keys: StreamKeys, stream_id: str) -> tuple[int, float]:
    """How many entries there were, and how long it took."""
    execute: Callable[..., Awaitable[Any]] = client.execute_command
    began_s = time.perf_counter()
    after, count, size_bytes = "-", 0, 0
    while True:
        entries: list[tuple[bytes, list[bytes]]] = await execute(
            "XRANGE", keys.frames(stream_id), after, "+", "COUNT", PAGE
        )
        body = b"".join([fields[-1] for _, fields in entries])
        count += len(entries)
        size_bytes += len(body)
        if len(entries) < PAGE:
            return count, time.perf_counter() - began_s
        after = f"({entries[-1][0].decode()}"
