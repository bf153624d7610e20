"""Open streams: so many a user and no more, and nothing is left of a reader who is gone, whenever they went (B8)."""

import asyncio
import contextlib
import socket
import struct
from typing import Any

import pytest
from structlog.testing import capture_logs
from tests.clients.api import GUARD_S, STREAM, Api
from tests.clients.tokens import token
from tests.contract.http.inside import gateway_inside
from tests.integration.fixtures import on_sqlite
from tests.integration.processes import eventually
from tests.integration.stack import Stack
from tests.standin import says

from runyard.streams.connect import CONNECTIONS_MAX
from runyard_gateway.gateway import Gateway

pytestmark = [pytest.mark.anyio, on_sqlite]

LIMIT = 2
RESETS = 100
FRAMES = 3000  # more than one write takes, so that a replay is broken off in its midst
AT_ONCE = 20


async def refused(api: Api, method: str, path: str, **more: Any) -> None:
    response = await api.call(method, path, headers=STREAM, **more)
    assert response.status_code == 503, response.text
    error = response.json()["error"]
    assert (error["code"], error["retryable"], error["limit"]) == ("STREAM_OVERLOADED", True, LIMIT)
    assert int(response.headers["retry-after"]) >= 1


async def refused_in_pylon(api: Api, method: str, path: str, **more: Any) -> None:
    response = await api.call(method, path, headers=STREAM, **more)
    assert (response.status_code, response.json()["error"]["code"]) == (503, "STREAM_OVERLOADED")
    assert int(response.headers["retry-after"]) >= 1


async def test_a_user_has_so_many_streams_and_no_more(stack: Stack, unique: str) -> None:
    async with (
        stack.starting_gateway(RUNYARD_STREAMS_PER_USER=str(LIMIT)) as gateway,
        contextlib.AsyncExitStack() as open_,
    ):
        api, other = gateway.bearer(token(unique, rooms=["lobby"])), gateway.user()
        started = [await api.start("unserved") for _ in range(LIMIT)]
        for run, path in zip(started, ("/v1/streams", "/api/fn-streams"), strict=True):
            reading = await open_.enter_async_context(api.reading("GET", f"{path}/{run['streamId']}"))
            assert reading.response.status_code == 200
        before = len((await api.get("/v1/runs")).json()["items"])
        await refused(api, "POST", "/v1/agents/unserved/runs", json={"input": "x"})
        await refused(api, "POST", f"/v1/runs/{started[0]['runId']}/input", json={"input": "x"})
        await refused(api, "POST", "/v1/functions/add", json={"input": {"first": 1, "second": 2}})
        await refused(api, "GET", f"/v1/streams/{started[0]['streamId']}")
        await refused(api, "GET", f"/v1/runs/{started[0]['runId']}/stream")
        await refused(api, "GET", "/v1/feed")
        await refused(api, "GET", "/v1/rooms/lobby")
        await refused_in_pylon(api, "POST", "/api/fn/unserved", json={"input": "x"})
        await refused_in_pylon(api, "POST", "/api/fn/add", json={"first": 1, "second": 2})
        await refused_in_pylon(api, "GET", f"/api/fn-streams/{started[0]['streamId']}")
        assert len((await api.get("/v1/runs")).json()["items"]) == before
        await api.start("unserved")  # it is streams that are counted
        assert (await api.post("/api/fn/add", {"first": 1, "second": 2})).json() == 3
        async with (
            other.streaming("unserved") as theirs,
            stack.gateway.bearer(token_of(api)).streaming("unserved") as there,
        ):
            await theirs.opened()
            await there.opened()  # each gateway counts its own
        await open_.aclose()

        async with asyncio.timeout(GUARD_S):
            while not await is_let_in(api, started[0]["streamId"]):
                pass


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/v1/feed"),
        ("GET", "/v1/rooms/lobby"),
        ("GET", "/v1/streams/{stream}"),
        ("GET", "/v1/runs/{run}/stream"),
        ("POST", "/v1/agents/unserved/runs"),
        ("POST", "/api/fn/unserved"),
    ],
)
async def test_those_who_come_at_once_are_no_more_either(stack: Stack, method: str, path: str) -> None:
    async with (
        stack.starting_gateway(RUNYARD_STREAMS_PER_USER=str(LIMIT)) as gateway,
        contextlib.AsyncExitStack() as open_,
    ):
        api = gateway.user()
        started = await api.start("unserved")
        path = path.format(stream=started["streamId"], run=started["runId"])
        call = {"headers": STREAM} | ({"json": {"input": "x"}} if method == "POST" else {})
        comers = [
            asyncio.create_task(open_.enter_async_context(api.reading(method, path, **call))) for _ in range(AT_ONCE)
        ]
        open_.callback(lambda: [comer.cancel() for comer in comers])  # Pylon's stream begins with its first frame
        refusals = 0
        for comer in asyncio.as_completed(comers):
            refusals += (await comer).response.status_code == 503
            if refusals == AT_ONCE - LIMIT:
                break
        assert refusals == AT_ONCE - LIMIT


async def is_let_in(api: Api, stream_id: str) -> bool:
    async with api.resuming(stream_id) as reading:
        return reading.response.status_code == 200


def token_of(api: Api) -> str:
    return api.headers["Authorization"].removeprefix("Bearer ")


async def test_a_stranger_is_not_told_of_the_limit(stack: Stack) -> None:
    async with stack.starting_gateway(RUNYARD_STREAMS_PER_USER="1") as gateway:
        owner, stranger = gateway.user(), gateway.user()
        started = await owner.start("unserved")
        async with stranger.streaming("unserved") as theirs:
            await theirs.opened()
            for path in (f"/v1/streams/{started['streamId']}", f"/v1/runs/{started['runId']}/stream"):
                assert (await stranger.get(path)).status_code == 404


# Readers who go -----------------------------------------------------------------------------------------------------


async def reset(port: int, request: bytes, *, received: int) -> None:
    """Send a request, read at least so many bytes of the answer, and break the connection (RST)."""
    loop = asyncio.get_running_loop()
    with socket.socket() as link:
        link.settimeout(0)
        await loop.sock_connect(link, ("127.0.0.1", port))
        await loop.sock_sendall(link, request)
        while received > 0:
            got = await loop.sock_recv(link, received)
            assert got
            received -= len(got)
        link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def held(gateway: Gateway) -> dict[str, int]:
    """What a reader could leave behind."""
    return {
        "tasks": len(asyncio.all_tasks()),
        "watched": len(gateway.hub._windows),
        "counted": sum(gateway.open_streams._open.values()),
        "redis": len(gateway.redis.connection_pool._in_use_connections),
        "database": gateway.database._engine.pool.checkedout(),
    }


async def test_nothing_is_left_of_readers_who_went(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    stack.standin.answers(says(*["word "] * FRAMES))
    api = stack.gateway.user()
    ended = (await api.run("talker"))["streamId"]
    live = (await api.start("unserved"))["streamId"]
    headers = "".join(f"{name}: {value}\r\n" for name, value in {**api.headers, **STREAM, "Host": "x"}.items())
    body = '{"input": "x"}'
    requests = {
        "call": f"POST /v1/agents/unserved/runs HTTP/1.1\r\n{headers}Content-Length: 14\r\n\r\n{body}".encode(),
        "replay": f"GET /v1/streams/{ended} HTTP/1.1\r\n{headers}\r\n".encode(),
        "tail": f"GET /v1/streams/{live} HTTP/1.1\r\n{headers}\r\n".encode(),
    }
    walks = [("call", 0), ("replay", 0), ("tail", 0), ("replay", 4096), ("tail", 256)]
    with capture_logs() as logged:
        async with gateway_inside(stack, monkeypatch, RUNYARD_STREAMS_PER_USER=str(RESETS)) as (gateway, port):
            await eventually(lambda: not gateway.hub.redis_away, "subscription")
            at_rest, connected = held(gateway), len(stack.redis.client_list())

            def rests() -> bool:
                return all(count <= at_rest[part] for part, count in held(gateway).items())

            for name, received in walks:
                for _ in range(RESETS // AT_ONCE):
                    await asyncio.gather(*[reset(port, requests[name], received=received) for _ in range(AT_ONCE)])
                await eventually(rests, f"rest after {name} readers")
                assert len(stack.redis.client_list()) <= connected + 2 * CONNECTIONS_MAX  # its pool, what wakes workers
    assert [entry for entry in logged if entry["log_level"] not in ("debug", "info")] == []
    async with api.resuming(ended) as reading:
        await reading.rest()
        assert reading.text == "word " * FRAMES
