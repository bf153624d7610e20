"""Processes that are told to leave while runs and readers depend on them."""

import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest
from tests.clients.answer import answer_text, is_terminal
from tests.clients.api import Api, replay
from tests.integration.fixtures import on_sqlite
from tests.integration.processes import Process
from tests.integration.stack import Stack
from tests.standin import Ending, calls, hold, says

pytestmark = pytest.mark.anyio

RELAY = {"RUNYARD_QUEUES": "relay", "RUNYARD_DRAIN_S": "0"}


@asynccontextmanager
async def two_workers(stack: Stack) -> AsyncIterator[list[Process]]:
    with stack.process("runyard_workers", **RELAY) as one, stack.process("runyard_workers", **RELAY) as other:
        await one.logged("worker registered")
        await other.logged("worker registered")
        yield [one, other]


def holder(stack: Stack, workers: list[Process], run_id: str) -> Process:
    """The worker that runs it."""
    query = "SELECT host FROM workers JOIN agent_runs ON workers.id = agent_runs.worker_id WHERE agent_runs.id = :run"
    ((host,),) = stack.execute(query, run=run_id)
    return next(worker for worker in workers if host.endswith(f":{worker.pid}"))


async def test_a_run_goes_on_in_the_same_stream_at_the_next_worker(stack: Stack, unique: str) -> None:
    stack.standin.answers(
        says("First. ").calls("charge", {"order": "once"}),
        says("This is ", "withdrawn", hold(unique), " for ever."),
        says("This ", "stays."),
    )
    api = stack.gateway.user()
    async with two_workers(stack) as workers, api.streaming("relay") as reading:
        run_id = reading.response.headers["x-run-id"]
        await reading.until_text("First. This is withdrawn")
        leaving = holder(stack, workers, run_id)
        leaving.send(signal.SIGTERM)
        events = await reading.rest()
        assert await leaving.exited() == 0
    assert await stack.standin.calls[1].ended() is Ending.CLIENT_CLOSED
    assert reading.text == "First. This stays."
    assert events[-1].type == "result"
    rows = await api.messages(run_id)
    stack.standin.validate_transcript([{"role": row["role"], "content": row["content"]} for row in rows])
    texts = [block["text"] for row in rows if row["role"] == "assistant" for block in row["content"][:1]]
    assert "".join(texts) == reading.text
    assert len(stack.effects(run_id)) == 1
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    assert await replay(api, reading.stream_id) == events


@on_sqlite
async def test_a_tool_that_had_begun_is_not_begun_again(stack: Stack, unique: str) -> None:
    stack.standin.answers(calls("hold", {"gate": unique}), says("Done."))
    api = stack.gateway.user()
    async with two_workers(stack) as workers:
        started = await api.start("relay")
        await stack.gate_reached(unique)
        leaving = holder(stack, workers, started["runId"])
        leaving.send(signal.SIGTERM)
        await leaving.logged("worker leaves")
        stack.open_gate(unique)
        result = await api.settled(started["invocationId"])
        assert await leaving.exited() == 0
    assert result["status"] == "completed"
    assert stack.effects(started["runId"]) == [f"hold {unique}"]


async def test_a_gateway_that_leaves_cuts_its_streams_and_another_goes_on(stack: Stack, unique: str) -> None:
    readers = 5
    stack.standin.answers(*[says("half ", hold(unique), "and half")] * readers)
    async with AsyncExitStack() as exits:
        leaving = await exits.enter_async_context(stack.starting_gateway())
        there = leaving.user()
        streams = [await exits.enter_async_context(there.streaming("talker")) for _ in range(readers)]
        for stream in streams:
            await stream.until_text("half ")
        leaving.process.send(signal.SIGTERM)
        for stream in streams:
            assert not any(is_terminal(event) for event in await stream.rest())
        assert await leaving.process.exited() == 0
    stack.standin.gate(unique).release()
    here = Api(stack.gateway.http, there.headers)
    for stream in streams:
        events = stream.events + await replay(here, stream.stream_id, stream.last_event_id)
        assert answer_text(events) == "half and half"
        assert [event.seq for event in events] == list(range(1, len(events) + 1))
