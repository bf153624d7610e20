"""Streams read from any cursor: live, ended, trimmed, gone from Redis. No reader waits for what will never come."""

import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any

import pytest
from tests.clients.answer import answer_text, is_terminal
from tests.clients.api import Api, Reading, replay
from tests.clients.sse import Event
from tests.integration.fixtures import on_sqlite
from tests.integration.processes import eventually
from tests.integration.stack import Stack
from tests.standin import fail, hold, says

from runyard.frames import text_payload
from runyard.streams.connect import connect
from runyard.streams.ops import Append, Open, Status
from runyard.streams.store import FrameStore

pytestmark = [pytest.mark.anyio, on_sqlite]

AT_ONCE_S = 5.0
"""A guard that is far shorter than a heartbeat: what comes before it came by itself."""

FROM_THE_START = ["-1", "", "1.5", "abc", "9" * 30]
"""What client libraries make up when they have no cursor, and what is none."""

AHEAD = "123456789"
SMALL_BYTES = 3000


@dataclass(frozen=True, kw_only=True)
class Ended:
    """A run with two steps, and all frames of its stream."""

    api: Api
    result: dict[str, Any]
    events: list[Event]

    @property
    def stream_id(self) -> str:
        return str(self.result["streamId"])

    @property
    def tip(self) -> str:
        return str(self.events[-1].seq)


async def ended_run(stack: Stack) -> Ended:
    stack.standin.answers(says("I ", "look. ").calls("look_up", {"order": "1"}), says("Found ", "it."))
    api = stack.gateway.user()
    async with api.streaming("clerk") as reading:
        events = await reading.rest()
    assert reading.text == "I look. Found it."
    return Ended(api=api, result=json.loads(events[-1].data), events=events)


async def outcome(reading: Reading) -> tuple[int, list[Event]]:
    return reading.response.status_code, await reading.rest(guard_s=AT_ONCE_S)


async def resumed(run: Ended, cursor: str | None = None, since: str | None = None) -> tuple[int, list[Event]]:
    async with run.api.resuming(run.stream_id, cursor, since=since) as reading:
        return await outcome(reading)


# A stream that has ended ------------------------------------------------------------------------------------------


async def test_an_ended_stream_is_replayed_from_any_cursor(stack: Stack) -> None:
    run = await ended_run(stack)
    assert await resumed(run) == (200, run.events)
    for index, event in enumerate(run.events[:-1]):
        assert await resumed(run, event.id) == (200, run.events[index + 1 :])
        assert await resumed(run, since=event.id) == (200, run.events[index + 1 :])
    assert await resumed(run, "0") == (200, run.events)
    for garbage in FROM_THE_START:
        assert await resumed(run, garbage) == (200, run.events)
        assert await resumed(run, since=garbage) == (200, run.events)
    assert await resumed(run, since="\N{ARABIC-INDIC DIGIT THREE}") == (200, run.events)


async def test_at_the_tip_of_an_ended_stream_there_is_nothing(stack: Stack) -> None:
    run = await ended_run(stack)
    for cursor in (run.tip, AHEAD):
        assert await resumed(run, cursor) == (204, [])
        assert await resumed(run, since=cursor) == (204, [])


async def test_the_header_wins_if_it_is_a_cursor(stack: Stack) -> None:
    run = await ended_run(stack)
    assert await resumed(run, "3", since="5") == (200, run.events[3:])
    assert await resumed(run, "-1", since="5") == (200, run.events[5:])
    assert await resumed(run, "", since=run.tip) == (204, [])


async def test_the_stream_of_a_run_is_its_newest_invocations(stack: Stack) -> None:
    run = await ended_run(stack)
    path = f"/v1/runs/{run.result['runId']}/stream"
    async with run.api.reading("GET", path) as reading:
        assert await reading.rest() == run.events
        assert reading.stream_id == run.stream_id
    stack.standin.answers(says("again"))
    again = await run.api.run("clerk", runId=run.result["runId"])
    async with run.api.reading("GET", path, headers={"Last-Event-ID": "2"}) as reading:
        await reading.rest()
        assert reading.stream_id == again["streamId"]
        assert reading.text == "again"
        assert reading.events[0].id == "3"
    assert await resumed(run) == (200, run.events)


# A stream under way -----------------------------------------------------------------------------------------------


async def test_a_live_stream_is_read_from_any_cursor_at_once(stack: Stack, unique: str) -> None:
    stack.standin.answers(says("half ", hold(unique), "whole"))
    api = stack.gateway.user()
    async with api.streaming("talker") as first:
        await first.until_text("half ")
        stream_id, tip = first.stream_id, first.last_event_id
        for garbage in (None, *FROM_THE_START):
            async with api.resuming(stream_id, garbage) as reading:
                for event in first.events:
                    assert await reading.next(guard_s=AT_ONCE_S) == event
        async with api.resuming(stream_id, tip) as at_tip, api.resuming(stream_id, AHEAD) as ahead:
            for reading in (at_tip, ahead):
                assert reading.response.status_code == 200
                await reading.opened(guard_s=AT_ONCE_S)
                assert reading.events == []
            stack.standin.gate(unique).release()
            await first.rest()
            assert await at_tip.rest() == first.events[int(tip) :]
            assert await ahead.rest() == []  # its answer ends with the stream
    async with api.resuming(stream_id, AHEAD) as reading:
        assert await outcome(reading) == (204, [])


async def test_a_queued_run_has_an_empty_stream(stack: Stack) -> None:
    api = stack.gateway.user()
    started = await api.start("unserved")
    for cursor in (None, "-1", "7"):
        async with api.resuming(started["streamId"], cursor) as reading:
            assert reading.response.status_code == 200
            await reading.opened(guard_s=AT_ONCE_S)
            assert reading.events == []


# Frames that are gone ---------------------------------------------------------------------------------------------


async def test_an_ended_stream_that_redis_has_lost_is_told_from_the_rows(stack: Stack) -> None:
    run = await ended_run(stack)
    stack.drop_frames(run.stream_id)
    cursors = [None, *FROM_THE_START, "0", *(event.id for event in run.events[:-1])]
    async with stack.starting_gateway() as fresh:
        api = Api(fresh.http, run.api.headers)
        for cursor in cursors:
            async with api.resuming(run.stream_id, cursor) as reading:
                status, events = await outcome(reading)
                assert status == 200
                assert reading.response.headers["cache-control"] == "no-cache"
                assert reading.text == "I look. Found it."
                assert [event.type for event in events] == ["rewind", "", "result"]
                assert json.loads(events[0].data) == {"toSeq": 0, "length": 0}
                assert events[0].id is None
                assert events[-1] == run.events[-1]
        for cursor in (run.tip, AHEAD):
            async with api.resuming(run.stream_id, cursor) as reading:
                assert await outcome(reading) == (204, [])


@pytest.mark.parametrize("dropped", ["", ":meta"], ids=["frames", "hash"])
async def test_half_of_a_stream_is_none(stack: Stack, dropped: str) -> None:
    """A Redis that is short of memory drops keys one by one."""
    run = await ended_run(stack)
    assert stack.redis.delete(f"{stack.backing.prefix}:stream:{run.stream_id}{dropped}") == 1
    for cursor in (None, "1"):
        async with run.api.resuming(run.stream_id, cursor) as reading:
            status, events = await outcome(reading)
            assert (status, reading.text, events[-1]) == (200, "I look. Found it.", run.events[-1])


async def test_the_end_of_a_failed_run_is_told_from_the_rows_to_whoever_missed_it(stack: Stack) -> None:
    """Frames that were withdrawn count: whoever has them, and not the end, must get the end."""
    broken = says("withdrawn").then(fail("invalid_request_error", "broken"))
    stack.standin.answers(says("kept ").calls("look_up", {"order": "1"}), broken)
    api = stack.gateway.user()
    async with api.streaming("clerk") as reading:
        events = await reading.rest()
        stream_id = reading.stream_id
    assert events[-1].type == "error"
    assert reading.text == "kept "
    stack.drop_frames(stream_id)
    for event in events[:-1]:
        async with api.resuming(stream_id, event.id) as late:
            status, told = await outcome(late)
            assert status == 200
            assert late.text == "kept "
            assert told[-1] == events[-1]
    async with api.resuming(stream_id, events[-1].id) as late:
        assert await outcome(late) == (204, [])


async def test_who_missed_the_end_behind_withdrawn_frames_gets_it_from_the_rows(stack: Stack) -> None:
    """A worker died with frames that no row accounts for; whoever settles the run withdraws them in its stream."""
    api = stack.gateway.user()
    started = await api.start("unserved")
    stream_id = started["streamId"]
    await written(stack, stream_id, ["lost ", "with ", "its ", "worker"])
    assert (await api.post(f"/v1/runs/{started['runId']}/cancel")).status_code == 200
    events = await replay(api, stream_id)
    assert [event.type for event in events] == ["", "", "", "", "rewind", "message", "result"]
    closed = "SELECT 1 FROM agent_invocations WHERE id = :id AND stream_closed"
    await eventually(lambda: stack.execute(closed, id=started["invocationId"]), "closed stream")
    stack.drop_frames(stream_id)
    for event in events[:-1]:
        async with api.resuming(stream_id, event.id) as late:
            status, told = await outcome(late)
            assert (status, late.text) == (200, "")
            assert told[-1] == events[-1]
    async with api.resuming(stream_id, events[-1].id) as late:
        assert await outcome(late) == (204, [])


async def written(stack: Stack, stream_id: str, texts: list[str]) -> None:
    """As a worker would write it that has claimed the run."""
    client = connect(stack.backing.redis_url)
    prefix = stack.backing.prefix
    store = FrameStore(client, prefix=prefix, retain_s=3600, max_bytes=10**6, max_streams=100)
    frames = [text_payload(text) for text in texts]
    answers = await store.apply(
        [Open(stream_id=stream_id, generation=1), Append(stream_id=stream_id, generation=1, first=1, frames=frames)]
    )
    assert [answer.status for answer in answers] == [Status.OK, Status.OK]
    await client.aclose()


@pytest.fixture(scope="module")
async def brief_worker(sqlite_stack: Stack) -> AsyncIterator[None]:
    """It keeps few bytes of a stream, and serves the agent `brief`."""
    settings = {"RUNYARD_QUEUES": "brief", "RUNYARD_STREAM_MAX_BYTES": str(SMALL_BYTES)}
    async with sqlite_stack.starting_worker(**settings):
        yield


@pytest.mark.usefixtures("brief_worker")
async def test_a_cursor_below_what_is_kept_is_told_where_to_begin(stack: Stack) -> None:
    stack.standin.answers(says(*[f"{number} " for number in range(200)]))
    api = stack.gateway.user()
    started = await api.start("brief")
    await api.settled(started["invocationId"])
    given: dict[str, Any]
    for given in (
        {"headers": {"Last-Event-ID": "50"}},
        {"headers": {"Last-Event-ID": "0"}},
        {"params": {"since": "50"}},
    ):
        response = await api.call("GET", f"/v1/streams/{started['streamId']}", **given)
        assert response.status_code == 410
        error = response.json()["error"]
        assert error["code"] == "STREAM_GONE"
        assert error["requestId"] == response.headers["x-request-id"]
        oldest = error["oldestSeq"]
        assert oldest > 150
    kept = await replay(api, started["streamId"], str(oldest - 1))
    assert [event.seq for event in kept] == list(range(oldest, oldest + len(kept)))
    assert is_terminal(kept[-1])
    async with api.resuming(started["streamId"], kept[-1].id) as reading:
        assert await outcome(reading) == (204, [])


@pytest.mark.usefixtures("brief_worker")
async def test_a_newcomer_to_a_trimmed_stream_gets_its_text_whole(stack: Stack, unique: str) -> None:
    words = [f"{number} " for number in range(200)]
    stack.standin.answers(
        says(*words).calls("hold", {"gate": unique}),
        says("and ", hold(f"{unique}-model"), "so on"),
    )
    api = stack.gateway.user()
    text = "".join(words)
    async with api.streaming("brief") as first:
        await stack.gate_reached(unique)
        async with api.resuming(first.stream_id) as between:
            await between.until_text(text)
            stack.open_gate(unique)
            await stack.standin.gate(f"{unique}-model").reached()
            async with api.resuming(first.stream_id) as later, api.resuming(first.stream_id, "-1") as garbage:
                for reading in (first, between, later, garbage):
                    await reading.until_text(text + "and ")
                assert [event.type for event in later.events[:2]] == ["rewind", ""]
                assert json.loads(later.events[0].data) == {"toSeq": 0, "length": 0}
                assert later.events[0].id is None
                assert later.events[1].data == text
                stack.standin.gate(f"{unique}-model").release()
                for reading in (first, between, later, garbage):
                    await reading.rest()
                    assert reading.text == text + "and so on"
                    assert is_terminal(reading.events[-1])
    assert later.events[1:] == garbage.events[1:]
    assert later.events[2:] == [event for event in first.events if (event.seq or 0) > int(later.events[1].id or 0)]
    after = await replay(api, first.stream_id)
    assert [event.type for event in after] == ["rewind", "", "message", "result"]
    assert after[1].data == text + "and so on"
    assert after[2:] == first.events[-2:]


@pytest.mark.usefixtures("brief_worker")
async def test_a_newcomer_to_a_long_answer_under_way_gets_it_whole(stack: Stack, unique: str) -> None:
    """Nothing of it is in the rows yet, and its first frames are gone: its worker begins it anew every now and then."""
    stages = [[f"{stage}.{number} " for number in range(20)] for stage in range(8)]
    gates = [f"{unique}-{stage}" for stage in range(len(stages))]
    parts = [part for words, gate in zip(stages, gates, strict=True) for part in (*words, hold(gate))]
    stack.standin.answers(says(*parts, "end"))
    api = stack.gateway.user()
    text = ""
    gone = 0
    async with api.streaming("brief") as first:
        for words, gate in zip(stages, gates, strict=True):
            text += "".join(words)
            await stack.standin.gate(gate).reached()
            await until_text(first, text)
            async with api.resuming(first.stream_id) as reading:
                await until_text(reading, text)
                resumed_at = reading.last_event_id
                gone += any(json.loads(event.data).get("trimmed") for event in reading.events if event.type == "status")
            async with api.resuming(first.stream_id, resumed_at) as on:
                assert on.response.status_code == 200
            stack.standin.gate(gate).release()
        await first.rest()
    assert gone > len(stages) // 2
    assert first.text == text + "end"
    after = await replay(api, first.stream_id)
    assert answer_text(after) == text + "end"


@pytest.mark.usefixtures("brief_worker")
async def test_a_newcomer_to_a_talkative_tool_is_told_what_is_gone(stack: Stack, unique: str) -> None:
    parts = [f"{number:3} " * 20 for number in range(100)]
    stack.standin.answers(
        says("I tell. ").calls("narrate", {"parts": parts}).calls("hold", {"gate": unique}), says("Told.")
    )
    api = stack.gateway.user()
    async with api.streaming("brief") as first:
        await stack.gate_reached(unique)
        await first.until(lambda event: event.type == "tool")
        async with api.resuming(first.stream_id) as late:
            last = await late.until(lambda event: event.type == "tool")
            assert late.text == "I tell. "
            assert [event.type for event in late.events[:3]] == ["rewind", "", "status"]
            told = json.loads(late.events[2].data)
            gone = {"fromSeq": (late.events[1].seq or 0) + 1, "toSeq": late.events[2].seq}
            assert told == {"status": "running", "trimmed": gone}
            assert late.events[3].seq == gone["toSeq"] + 1
            assert last == first.events[-1]
            stack.open_gate(unique)
            await late.rest()
            await first.rest()
    assert late.text == first.text == "I tell. Told."
    assert [event for event in first.events if (event.seq or 0) > gone["toSeq"]] == late.events[3:]


async def test_a_stream_trimmed_by_hand_is_read_as_any_trimmed_one(stack: Stack, unique: str) -> None:
    """Its hash tells of frames that are not there: nobody waits for them."""
    stack.standin.answers(says("one ", "two ").calls("hold", {"gate": unique}), says("three"))
    api = stack.gateway.user()
    async with api.streaming("clerk") as first:
        await stack.gate_reached(unique)
        key = f"{stack.backing.prefix}:stream:{first.stream_id}"
        begins = await first.until(lambda event: event.type == "tool_start")
        stack.redis.xtrim(key, minid=str(begins.seq), approximate=False)
        below = await api.get(f"/v1/streams/{first.stream_id}", headers={"Last-Event-ID": "0"})
        assert (below.status_code, below.json()["error"]["oldestSeq"]) == (410, begins.seq)
        async with api.resuming(first.stream_id) as late:
            await late.until(lambda event: event == begins)
            assert late.text == "one two "
            stack.open_gate(unique)
            await late.rest()
            await first.rest()
    assert late.text == first.text == "one two three"
    assert late.events[-1] == first.events[-1]
    stack.redis.xtrim(key, maxlen=0, approximate=False)
    for cursor in (None, "0", begins.id):
        told = await replay(api, first.stream_id, cursor)
        assert [event.type for event in told] == ["rewind", "", "result"]
        assert answer_text(told) == first.text


async def test_an_ended_stream_that_a_person_deleted_frames_of_is_told_from_the_rows(stack: Stack) -> None:
    """Their neighbours are there, and the hash tells of no loss."""
    run = await ended_run(stack)
    middle = run.events[len(run.events) // 2]
    assert stack.redis.xdel(f"{stack.backing.prefix}:stream:{run.stream_id}", f"{middle.seq}-0") == 1
    for cursor in (None, "0", "1", middle.id):
        told = await replay(run.api, run.stream_id, cursor)
        assert [event.type for event in told] == ["rewind", "", "result"]
        assert answer_text(told) == "I look. Found it."
        assert told[-1] == run.events[-1]
    assert await resumed(run, run.tip) == (204, [])


async def until_text(reading: Reading, text: str) -> None:
    """Read on until the text is this; on the way to it, what is kept of a trimmed answer may be any part of it."""
    while reading.text != text:
        assert await reading.next() is not None, reading.text


# Whose stream -----------------------------------------------------------------------------------------------------


async def test_the_streams_of_others_do_not_exist(stack: Stack) -> None:
    """Also to a cursor that its owner is told is too old."""
    run = await ended_run(stack)
    stack.trim_frames(run.stream_id, first=int(run.tip))
    assert (await run.api.get(f"/v1/streams/{run.stream_id}", headers={"Last-Event-ID": "1"})).status_code == 410
    foreign = [stack.gateway.user(), stack.gateway.user(tenant="t2"), stack.gateway.user(tenant="t2", roles=("admin",))]
    paths: Mapping[str, str] = {
        f"/v1/streams/{run.stream_id}": "/v1/streams/st_" + "0" * 40,
        f"/v1/runs/{run.result['runId']}/stream": "/v1/runs/run_" + "0" * 32 + "/stream",
    }
    for path, unknown in paths.items():
        for api in foreign:
            for cursor in ({}, {"Last-Event-ID": run.tip}, {"Last-Event-ID": "1"}):
                there = (await api.get(path, headers=cursor)).json()["error"]
                nowhere = (await api.get(unknown, headers=cursor)).json()["error"]
                differing = {name for name in there | nowhere if there.get(name) != nowhere.get(name)}
                assert differing <= {"requestId", "runId"}
