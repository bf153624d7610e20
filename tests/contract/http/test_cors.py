"""Browsers of other origins: who may call, what they may send and read."""

from collections.abc import AsyncIterator

import pytest
from tests.integration.fixtures import on_sqlite
from tests.integration.stack import Gateway, Stack

pytestmark = [pytest.mark.anyio, on_sqlite]

ORIGIN = "https://app.example"
EXPOSED = {"X-Stream-Id", "X-Run-Id", "X-Request-Id", "Location", "Retry-After"}


@pytest.fixture(scope="module")
async def gateway(sqlite_stack: Stack) -> AsyncIterator[Gateway]:
    origins = f"{ORIGIN}, https://admin.example"
    async with sqlite_stack.starting_gateway(RUNYARD_CORS_ORIGINS=origins) as gateway:
        yield gateway


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_a_preflight_of_a_known_origin_is_granted(stack: Stack, gateway: Gateway, method: str) -> None:
    headers = {
        "Origin": ORIGIN,
        "Access-Control-Request-Method": method,
        "Access-Control-Request-Headers": "authorization,content-type,last-event-id,prefer",
    }
    response = await gateway.anonymous().call("OPTIONS", "/v1/agents/talker/runs", headers=headers)
    assert response.status_code == 200
    assert response.headers["access-control-allow-origin"] == ORIGIN
    assert method in response.headers["access-control-allow-methods"]
    allowed = response.headers["access-control-allow-headers"].lower()
    assert all(name in allowed for name in ("authorization", "content-type", "last-event-id", "prefer"))
    assert "access-control-allow-credentials" not in response.headers


async def test_a_preflight_of_an_unknown_origin_is_not(stack: Stack, gateway: Gateway) -> None:
    headers = {"Origin": "https://evil.example", "Access-Control-Request-Method": "POST"}
    response = await gateway.anonymous().call("OPTIONS", "/v1/agents/talker/runs", headers=headers)
    assert "access-control-allow-origin" not in response.headers


async def test_answers_can_be_read_errors_too(stack: Stack, gateway: Gateway) -> None:
    for api, path in ((gateway.user(), "/v1/runs"), (gateway.anonymous(), "/v1/runs"), (gateway.user(), "/nowhere")):
        response = await api.get(path, headers={"Origin": ORIGIN})
        assert response.headers["access-control-allow-origin"] == ORIGIN
        assert set(response.headers["access-control-expose-headers"].split(", ")) >= EXPOSED
        assert "Origin" in response.headers["vary"]
        refused = await api.get(path, headers={"Origin": "https://evil.example"})
        assert "access-control-allow-origin" not in refused.headers


async def test_streams_can_be_read(stack: Stack, gateway: Gateway) -> None:
    api = gateway.user()
    async with api.streaming("unserved", headers={"Origin": ORIGIN}) as reading:
        assert reading.response.headers["access-control-allow-origin"] == ORIGIN
        assert reading.stream_id


async def test_without_origins_no_origin_is_let_in(stack: Stack) -> None:
    response = await stack.gateway.user().get("/v1/runs", headers={"Origin": ORIGIN})
    assert "access-control-allow-origin" not in response.headers
    headers = {"Origin": ORIGIN, "Access-Control-Request-Method": "POST"}
    response = await stack.gateway.user().call("OPTIONS", "/v1/agents/talker/runs", headers=headers)
    assert response.status_code == 405
