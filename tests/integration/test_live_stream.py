"""Readers of a run that is under way: every token at once, every frame once, whatever becomes of their connections."""

import random
from collections.abc import Sequence

import pytest
from tests.clients.answer import answer_text, is_terminal
from tests.clients.api import Api, replay
from tests.clients.sse import Event
from tests.integration.stack import Stack
from tests.standin import Gate, hold, says

pytestmark = pytest.mark.anyio

SEED = 20261130


async def test_every_delta_arrives_before_the_next_is_sent(stack: Stack, unique: str) -> None:
    deltas = [f"word {number} " for number in range(40)]
    stack.standin.answers(says(*deltas).each_delta(unique))
    gate = stack.standin.gate(unique)
    api = stack.gateway.user()
    async with api.streaming("talker") as reading:
        for number, delta in enumerate(deltas, start=1):
            gate.advance()
            event = await reading.until(lambda event: event.type == "")
            assert event.data == delta
            assert gate.arrivals <= number + 1
        await reading.rest()
    assert reading.text == "".join(deltas)
    assert is_terminal(reading.events[-1])


async def test_a_reader_that_reconnects_fifty_times_sees_each_frame_once(stack: Stack, unique: str) -> None:
    chance = random.Random(SEED)
    first = [f"a{number} " for number in range(30)]
    second = [f"b{number} " for number in range(200)]
    stack.standin.answers(
        says(*first).calls("charge", {"order": "x"}, at_start=True).each_delta(unique),
        says(*second).each_delta(unique),
    )
    gate = stack.standin.gate(unique)
    api = stack.gateway.user()
    started = await api.start("clerk")
    stream_id = started["streamId"]
    seen: list[Event] = []
    for _ in range(25):
        seen += await read_some(api, stream_id, seen, chance.randint(1, 4), gate)
    run = (await api.get(f"/v1/runs/{started['runId']}")).json()
    assert run["status"] == "running"
    assert seen[-1].data.startswith("b")
    gate.release()
    await api.settled(started["invocationId"])
    whole = await replay(api, stream_id)
    for left in range(24, 0, -1):
        count = chance.randint(1, 2 * (len(whole) - len(seen)) // (left + 1))
        seen += await read_some(api, stream_id, seen, count, gate)
    assert not is_terminal(seen[-1])
    seen += await replay(api, stream_id, str(seen[-1].seq))
    assert seen == whole
    assert [event.seq for event in seen] == list(range(1, len(seen) + 1))
    assert [event for event in seen if is_terminal(event)] == seen[-1:]
    assert answer_text(seen) == "".join(first + second)
    async with api.resuming(stream_id, str(seen[-1].seq)) as reading:
        assert reading.response.status_code == 204
        assert await reading.rest() == []


async def read_some(api: Api, stream_id: str, seen: Sequence[Event], count: int, gate: Gate) -> list[Event]:
    """Connect with the last id, read so many frames, hang up with whatever else has come."""
    async with api.resuming(stream_id, str(seen[-1].seq) if seen else None) as reading:
        while len(reading.events) < count:
            gate.advance()
            event = await reading.next()
            assert event is not None, "the stream ended"
    return list(reading.events)


async def test_a_reader_that_comes_late_reads_all_of_it_and_goes_on_live(stack: Stack, unique: str) -> None:
    stack.standin.answers(says(*"abcdef").each_delta(unique))
    gate = stack.standin.gate(unique)
    api = stack.gateway.user()
    async with api.streaming("talker") as first:
        gate.advance(3)
        await first.until_text("abc")
        async with api.resuming(first.stream_id) as late, api.resuming(first.stream_id, since="3") as later:
            await late.until_text("abc")
            gate.release()
            await late.rest()
            await later.rest()
        await first.rest()
    assert late.events == first.events
    assert later.events == first.events[3:]


async def test_what_tools_write_is_seen_while_they_work(stack: Stack, unique: str) -> None:
    parts = ["first", "sec\rond\n", "third"]
    stack.standin.answers(
        says("Wait.").calls("narrate", {"parts": parts}).calls("hold", {"gate": unique}),
        says("Told."),
    )
    async with stack.gateway.user().streaming("clerk") as reading:
        await reading.until(lambda event: event.type == "progress" and "third" in event.data)
        await stack.gate_reached(unique)
        stack.open_gate(unique)
        events = await reading.rest()
    assert reading.text == "Wait.Told."
    kinds = [event.type for event in events]
    assert kinds.count("tool_start") == kinds.count("tool") == 2
    assert kinds.count("output") == kinds.count("progress") == len(parts)


async def test_frames_that_redis_loses_under_way_are_made_good(stack: Stack, unique: str) -> None:
    """The stream begins anew under higher numbers; whoever reads it, from the start or from a cursor, ends equal."""
    stack.standin.answers(
        says("Kept. ").calls("hold", {"gate": unique}),
        says("Lost ", hold(unique), "and found."),
    )
    text = "Kept. Lost and found."
    api = stack.gateway.user()
    async with api.streaming("clerk") as first:
        await first.until_text("Kept. ")
        stack.open_gate(unique)
        await first.until_text("Kept. Lost ")
        seen = list(first.events)
        stack.drop_frames(first.stream_id)
        async with api.resuming(first.stream_id, first.last_event_id) as late, api.resuming(first.stream_id) as new:
            await late.opened()
            await new.opened()
            stack.standin.gate(unique).release()
            for reading in (first, new, late):
                assert is_terminal((await reading.rest())[-1])
    assert first.text == new.text == answer_text(seen + late.events) == text
    rows = await api.messages(first.response.headers["x-run-id"])
    assert text == "".join(
        block["text"]
        for row in rows
        if row["role"] == "assistant"
        for block in row["content"]
        if block["type"] == "text"
    )
    assert answer_text(await replay(api, first.stream_id)) == text
