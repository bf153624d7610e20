"""Calls a minute: counted for a user and for a tenant, at all gateways together; none is refused for want of Redis."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator

import pytest
from tests.clients.api import Api
from tests.integration.fixtures import on_sqlite
from tests.integration.stack import Stack

pytestmark = [pytest.mark.anyio, on_sqlite]

START = "/v1/agents/unserved/runs"


async def statuses(api: Api, number: int, **headers: str) -> Counter[int]:
    answers = await asyncio.gather(*(api.post(START, {"input": "x"}, headers=headers) for _ in range(number)))
    return Counter(answer.status_code for answer in answers)


async def test_a_user_may_make_so_many_calls_at_all_gateways_together(stack: Stack) -> None:
    limit = {"RUNYARD_RATE_USER_PER_MIN": "4"}
    async with stack.starting_gateway(**limit) as one, stack.starting_gateway(**limit) as other:
        api = one.user("busy")
        assert await statuses(api, 3) == {202: 3}
        assert await statuses(other.user("busy"), 4) == {202: 1, 429: 3}
        refused = await api.post(START, {"input": "x"})
        error = refused.json()["error"]
        assert (error["code"], error["retryable"]) == ("RATE_LIMITED", True)
        assert 0 < error["retryAfterMs"] <= 15_000, "a quarter of a minute for one call"
        assert 1 <= int(refused.headers["retry-after"]) <= 15
        assert len((await api.get("/v1/runs")).json()["items"]) == 4, (
            "reading is not counted, refused calls store nothing"
        )
        run_id = (await api.get("/v1/runs")).json()["items"][0]["id"]
        assert (await api.post(f"/v1/runs/{run_id}/input", {"input": "x"})).status_code == 429
        assert (await api.post(f"/v1/runs/{run_id}/cancel")).status_code == 200, "one may always stop"
        assert await statuses(one.user("calm"), 1) == {202: 1}


async def test_a_tenants_users_share_its_calls(stack: Stack) -> None:
    async with stack.starting_gateway(RUNYARD_RATE_TENANT_PER_MIN="3", RUNYARD_RATE_USER_PER_MIN="2") as gateway:
        assert await statuses(gateway.user("a", tenant="full"), 3) == {202: 2, 429: 1}
        assert await statuses(gateway.user("b", tenant="full"), 2) == {202: 1, 429: 1}
        assert await statuses(gateway.user("c", tenant="full"), 1) == {429: 1}
        service = gateway.user(tenant="full", roles=("service",))
        assert (await service.post(START, {"input": "x", "as": {"userId": "d"}})).status_code == 429
        assert await statuses(gateway.user("a", tenant="other"), 1) == {202: 1}


async def test_refused_calls_are_not_counted(stack: Stack) -> None:
    async with stack.starting_gateway(RUNYARD_RATE_USER_PER_MIN="1") as gateway:
        api = gateway.user("careless")
        assert (await api.post(START, {"input": ""})).status_code == 400
        assert (await api.post("/v1/agents/none/runs", {"input": "x"})).status_code == 404
        assert await statuses(api, 2) == {202: 1, 429: 1}


@pytest.mark.parametrize("redis", ["refuses", "is silent"])
async def test_without_redis_every_call_passes(stack: Stack, redis: str) -> None:
    async with contextlib.AsyncExitStack() as exits:
        port = 1 if redis == "refuses" else await exits.enter_async_context(silent_server())
        settings = {"RUNYARD_RATE_USER_PER_MIN": "1", "RUNYARD_REDIS_URL": f"redis://127.0.0.1:{port}"}
        gateway = await exits.enter_async_context(stack.starting_gateway(**settings))
        assert await statuses(gateway.user("lucky"), 3) == {202: 3}


@contextlib.asynccontextmanager
async def silent_server() -> AsyncIterator[int]:
    """The port of one that takes connections and whatever is sent, and answers nothing."""

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.read(65_536):
            pass
        writer.close()

    server = await asyncio.start_server(listen, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]
