"""A gateway that trusts every caller still does not serve the pages of other sites."""

from collections.abc import Mapping
from typing import Any

import pytest

from runyard.errors import Forbidden
from runyard_gateway.auth.loopback import LoopbackOnly

pytestmark = pytest.mark.anyio


async def call(headers: Mapping[str, str]) -> bool:
    """Whether the request got through."""
    reached = False

    async def app(_scope: Any, _receive: Any, _send: Any) -> None:
        nonlocal reached
        reached = True

    async def unused(*_: Any) -> Any:
        raise AssertionError

    scope = {"type": "http", "headers": [(name.encode(), value.encode()) for name, value in headers.items()]}
    try:
        await LoopbackOnly(app, origins=("https://app.example",))(scope, unused, unused)
    except Forbidden:
        return False
    return reached


@pytest.mark.parametrize(
    "headers",
    [
        {"host": "127.0.0.1:8000"},
        {"host": "localhost"},
        {"host": "[::1]:8000"},
        {},
        {"host": "127.0.0.1:8000", "origin": "http://127.0.0.1:8000"},
        {"host": "127.0.0.1:8000", "origin": "http://localhost:3000"},
        {"host": "127.0.0.1:8000", "origin": "https://app.example"},
    ],
)
async def test_this_machine_is_served(headers: dict[str, str]) -> None:
    assert await call(headers)


@pytest.mark.parametrize(
    "headers",
    [
        {"host": "rebound.example:8000"},
        {"host": "127.0.0.1.example"},
        {"host": "127.0.0.1:8000", "origin": "https://evil.example"},
        {"host": "127.0.0.1:8000", "origin": "null"},
        {"host": "127.0.0.1:8000", "origin": "http://[bad"},
        {"host": "127.0.0.1:8000", "origin": "http://localhost.evil.example"},
    ],
)
async def test_other_sites_are_refused(headers: dict[str, str]) -> None:
    assert not await call(headers)
