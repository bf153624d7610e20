"""The servers for tests of streams: a running Redis and an embedded Valkey, each with both event loops."""

from collections.abc import Iterator

import pytest
from tests.redis_servers import redis_server, valkey_server


@pytest.fixture(scope="module", params=["redis-asyncio", "valkey-uvloop"])
def surroundings(request: pytest.FixtureRequest) -> str:
    """Both servers and both event loops, without every pair of them."""
    return str(request.param)


@pytest.fixture(scope="module")
def anyio_backend(surroundings: str) -> tuple[str, dict[str, bool]]:
    return "asyncio", {"use_uvloop": surroundings == "valkey-uvloop"}


@pytest.fixture(scope="module")
def redis_url(surroundings: str) -> Iterator[str]:
    if surroundings == "redis-asyncio":
        yield redis_server()
        return
    with valkey_server() as url:
        yield url
