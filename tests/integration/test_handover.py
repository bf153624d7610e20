"""Processes that are told to leave while runs and readers depend on them."""

import asyncio
import signal
from contextlib import AsyncExitStack

import pytest
from tests.clients.answer import answer_text, is_terminal
from tests.clients.api import Api, replay
from tests.integration.fixtures import on_sqlite
from tests.integration.stack import Stack
from tests.standin import Ending, calls, hold, says

pytestmark = pytest.mark.anyio

RELAY = {"RUNYARD_QUEUES": "relay", "RUNYARD_DRAIN_S": "0"}


async def test_runs_of_a_worker_that_leaves_go_on_at_the_next(stack: Stack, unique: str) -> None:
    """One is in the middle of an answer, which is withdrawn in its stream; one in a tool, which is not run again."""
    stack.standin.answers(
        says("First. ").calls("charge", {"order": "once"}),
        says("This is ", "withdrawn", hold(unique), " for ever."),
        says("This ", "stays."),
        contains="answer",
    )
    stack.standin.answers(calls("hold", {"gate": unique}), says("Done."), contains="act")
    api = stack.gateway.user()
    async with AsyncExitStack() as exits:
        leaving = await exits.enter_async_context(stack.starting_worker(**RELAY))
        reading = await exits.enter_async_context(api.streaming("relay", "answer"))
        await reading.until_text("First. This is withdrawn")
        acting = await api.start("relay", "act")
        await stack.gate_reached(unique)
        await exits.enter_async_context(stack.starting_worker(**RELAY))
        leaving.send(signal.SIGTERM)
        await leaving.logged("worker leaves")
        stack.open_gate(unique)
        events = await reading.rest()
        acted = await api.settled(acting["invocationId"])
        assert await leaving.exited() == 0
        assert leaving.complaints() == []
    run_id = reading.response.headers["x-run-id"]
    assert events[-1].type == "result"
    assert reading.text == "First. This stays."
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    assert await replay(api, reading.stream_id) == events
    rows = await api.messages(run_id)
    stack.standin.validate_transcript([{"role": row["role"], "content": row["content"]} for row in rows])
    texts = [block["text"] for row in rows if row["role"] == "assistant" for block in row["content"][:1]]
    assert "".join(texts) == reading.text
    assert len(stack.effects(run_id)) == 1
    endings = [(call.conversation, await call.ended()) for call in stack.standin.calls]
    assert [whose for whose, ending in endings if ending is Ending.CLIENT_CLOSED] == ["answer"]
    assert acted["status"] == "completed"
    assert stack.effects(acting["runId"]) == [f"hold {unique}"]


async def test_a_gateway_that_leaves_cuts_its_streams_and_another_goes_on(stack: Stack, unique: str) -> None:
    """Streams that flow, streams on which nothing has come yet, a call that waits for its result."""
    readers = 10
    stack.standin.answers(*[says("half ", hold(unique), "and half")] * readers)
    async with AsyncExitStack() as exits:
        leaving = await exits.enter_async_context(stack.starting_gateway())
        there = leaving.user()
        streams = [await exits.enter_async_context(there.streaming("talker")) for _ in range(readers)]
        idle = [await exits.enter_async_context(there.streaming("unserved")) for _ in range(readers)]
        for stream in streams:
            await stream.until_text("half ")
        for stream in idle:
            await stream.opened()
        tasks = await exits.enter_async_context(asyncio.TaskGroup())
        waiting = {"headers": {"Prefer": "wait=60"}, "json": {"input": "wait"}}
        call = tasks.create_task(there.call("POST", "/v1/agents/unserved/runs", **waiting))
        while len((await there.get("/v1/runs", status="queued")).json()["items"]) < readers + 1:
            pass
        leaving.process.send(signal.SIGTERM)
        for stream in (*streams, *idle):
            assert not any(is_terminal(event) for event in await stream.rest())
        answered = await call
        assert (answered.status_code, answered.json()["status"]) == (202, "queued")
        assert await leaving.process.exited() == 0
        assert leaving.process.complaints() == []
    stack.standin.gate(unique).release()
    here = Api(stack.gateway.http, there.headers)
    for stream in streams:
        events = stream.events + await replay(here, stream.stream_id, stream.last_event_id)
        assert answer_text(events) == "half and half"
        assert [event.seq for event in events] == list(range(1, len(events) + 1))
    assert len((await here.get("/v1/runs", status="cancelled")).json()["items"]) == 0
    queued = (await here.get("/v1/runs", status="queued", limit=100)).json()["items"]
    assert {stream.stream_id for stream in idle} | {answered.json()["streamId"]} == {run["streamId"] for run in queued}


@on_sqlite
async def test_a_gateway_that_is_told_twice_ends_as_well_behaved(stack: Stack) -> None:
    """Ctrl-C, and once more."""
    async with stack.starting_gateway() as leaving:
        api = leaving.user()
        async with api.streaming("unserved") as reading:
            await reading.opened()
            leaving.process.send(signal.SIGINT)
            leaving.process.send(signal.SIGINT)
            assert await leaving.process.exited() == 0
