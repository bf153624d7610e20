"""A gateway is told to leave: open streams end without a terminal frame, whoever stalls is let go, it exits with 0."""

import asyncio
import signal
import socket
from contextlib import AsyncExitStack, suppress

import httpx2
import pytest
from tests.clients.answer import is_terminal
from tests.clients.api import STREAM, Api
from tests.integration.fixtures import on_sqlite
from tests.integration.processes import eventually
from tests.integration.stack import Gateway, Stack
from tests.standin import says

from runyard.frames import Payload, text_payload
from runyard.streams.connect import connect
from runyard.streams.ops import Append, Open
from runyard.streams.store import FrameStore

pytestmark = [pytest.mark.anyio, on_sqlite]

READERS = 20
ACCEPTED = "SELECT 1 FROM agent_inputs WHERE content LIKE :input"
LONG = [text_payload("x" * 1000)] * 3000


async def test_open_streams_end_at_once_and_without_a_word(stack: Stack, unique: str) -> None:
    async with AsyncExitStack() as exits:
        leaving = await exits.enter_async_context(stack.starting_gateway())
        api = leaving.user()
        started = [await api.start("unserved") for _ in range(READERS)]
        for each in started[::2]:
            await write(stack, each["streamId"], LONG[:3])
        readings = [await exits.enter_async_context(api.resuming(each["streamId"])) for each in started]
        for reading in readings:
            await reading.opened()
        stalled = exits.enter_context(await stalling(stack, leaving, api))
        call = api.post("/v1/agents/unserved/runs", {"input": unique}, headers={"Prefer": "wait=60"})
        waiting = asyncio.create_task(call)
        await eventually(lambda: stack.execute(ACCEPTED, input=f"%{unique}%"), "call that waits")
        leaving.process.send(signal.SIGTERM)
        for number, reading in enumerate(readings):
            events = await reading.rest()
            assert [event.seq for event in events] == ([1, 2, 3] if number % 2 == 0 else [])
            assert not any(map(is_terminal, events))
        with suppress(httpx2.TransportError):  # nobody listens any more
            assert (await leaving.anonymous().get("/readyz")).status_code == 503
        assert (await waiting).status_code == 202
        assert await leaving.process.exited() == 0
        assert leaving.process.complaints() == []
        assert stalled.recv(1) == b"H"
        here = Api(stack.gateway.http, api.headers)
        for each, reading in zip(started, readings, strict=True):
            async with here.resuming(each["streamId"], reading.last_event_id) as resumed:
                assert resumed.response.status_code == 200
                await resumed.opened()
                assert resumed.events == []


async def stalling(stack: Stack, gateway: Gateway, api: Api) -> socket.socket:
    """A reader of a long stream who reads nothing of it."""
    started = await api.start("unserved")
    await write(stack, started["streamId"], LONG)
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.connect((gateway.host, gateway.port))
    headers = {"Host": "test", **STREAM, **api.headers}
    lines = [
        f"GET /v1/streams/{started['streamId']} HTTP/1.1",
        *(f"{name}: {value}" for name, value in headers.items()),
    ]
    client.sendall("\r\n".join([*lines, "", ""]).encode())
    await asyncio.to_thread(client.recv, 1, socket.MSG_PEEK)
    return client


async def write(stack: Stack, stream_id: str, frames: list[Payload]) -> None:
    """As a worker would that has claimed the run."""
    client = connect(stack.backing.redis_url)
    store = FrameStore(client, prefix=stack.backing.prefix, retain_s=3600, max_bytes=1 << 22, max_streams=100)
    await store.apply(
        [Open(stream_id=stream_id, generation=1), Append(stream_id=stream_id, generation=1, first=1, frames=frames)]
    )
    await client.aclose()


async def test_an_erasure_that_waits_is_answered_too(stack: Stack, unique: str) -> None:
    """Its run is asked to stop, once, and is not erased: here is nobody left to wait for it."""
    stack.standin.answers(says("I hold.").calls("hold", {"gate": unique}))
    async with stack.starting_gateway() as leaving:
        api = leaving.user()
        started = await api.start("clerk")
        await stack.gate_reached(unique)
        erasing = asyncio.create_task(api.call("DELETE", f"/v1/runs/{started['runId']}?force"))
        await leaving.process.logged("cancel requested")
        leaving.process.send(signal.SIGTERM)
        answer = await erasing
        assert (answer.status_code, answer.json()["error"]["code"]) == (409, "RUN_BUSY")
        assert await leaving.process.exited() == 0
        assert (len(leaving.process.events("cancel requested")), leaving.process.complaints()) == (1, [])
    stack.open_gate(unique)
    here = Api(stack.gateway.http, api.headers)
    assert (await here.settled(started["invocationId"]))["status"] == "cancelled"
