"""One worker is killed with runs in every phase; another one goes on with each of them, before the same readers."""

import asyncio
import json
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

import httpx2
import pytest
from tests.clients.answer import answer_text, is_terminal
from tests.clients.api import Api, Reading
from tests.clients.metrics import Samples, scraped, shows, value
from tests.clients.sse import Event
from tests.fault.accounts import INTERRUPTED, Account, account_of
from tests.fault.conftest import Fleet, on_redis
from tests.fault.crew import working
from tests.fault.otlp import Span, collecting
from tests.fault.readers import moved, run_of
from tests.integration.processes import GUARD_S, eventually
from tests.integration.stack import Stack
from tests.ports import free_port
from tests.relay import relay_before
from tests.standin import hold, says

from runyard.blocks import CANCELLED

pytestmark = [pytest.mark.anyio, on_redis, pytest.mark.usefixtures("stack")]

DEATH, END, NEVER = "the-death", "the-end", "never"
LOOKS_UP = says("Kept. ").calls("look_up", {"order": "a"})
SCRIPTS = {
    "first words": [says("Nothing of ", "this", hold(DEATH)), says("All anew.")],
    "mid-stream": [LOOKS_UP, says("Not ", "kept", hold(DEATH)), says("Kept ", "too.")],
    "mid-tool": [
        says("Four. ")
        .calls("charge", {"order": "a"})
        .calls("wait", {"gate": DEATH})
        .calls("wait_keyed", {"gate": DEATH})
        .calls("book", {"order": "a"}),
        says("Done."),
    ],
    "frames lost": [LOOKS_UP, says("Not kept", hold(DEATH)), says("Kept ", "too.")],
    "unclosed": [says("All there is.", hold(END))],
    "unclosed, frames lost": [says("Half, ", hold(END), "and half.")],
    "stopped in its tools": [
        says("Three. ").calls("charge", {"order": "a"}).calls("wait", {"gate": NEVER}).calls("book", {"order": "a"}),
        says("Back again."),
    ],
    "stopped in its answer": [says("Half ", hold(DEATH)), says("Back again.")],
}
"""What the model says, in the order in which it is asked: it holds until the death, or until Redis does not hear."""

AT_DEATH = {
    "first words": "Nothing of this",
    "mid-stream": "Kept. Not kept",
    "mid-tool": "Four. ",
    "frames lost": "Kept. Not kept",
    "unclosed": "All there is.",
    "unclosed, frames lost": "Half, ",
    "stopped in its tools": "Three. ",
    "stopped in its answer": "Half ",
}
"""What readers have in hand when the worker is killed."""

TRACE_ID, CALLER = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
TRACEPARENT = {"traceparent": f"00-{TRACE_ID}-{CALLER}-01"}

TAKEN_OVER = ("first words", "mid-stream", "mid-tool", "frames lost")
UNCLOSED = ("unclosed", "unclosed, frames lost")
STOPPED = ("stopped in its tools", "stopped in its answer")
"""When the worker is dead already, and nobody has noticed yet."""

ABANDONED = TAKEN_OVER + STOPPED
EVERY = pytest.mark.parametrize("name", SCRIPTS)


@dataclass(frozen=True, kw_only=True)
class Told:
    """A run as two readers were told of it: one that stays, and one that moves to the other gateway at the death."""

    account: Account
    staying: list[Event]
    moving: list[Event]

    @property
    def kinds(self) -> list[str]:
        return [event.type for event in self.staying]


@dataclass(frozen=True, kw_only=True)
class Aftermath:
    told: dict[str, Told]
    heir: list[dict[str, Any]]
    """What the other worker logged."""

    counted: Samples
    """The other worker's metrics."""

    spans: list[Span]
    """Of the run that was in its tools, whose call came with the span of a caller."""

    pids: tuple[int, int]
    """Of the two workers."""

    cancels: dict[str, httpx2.Response]
    again: dict[str, dict[str, Any]]
    """The results of the runs that were stopped, when they were called once more."""

    sent_again: list[dict[str, Any]]
    """What the model was sent then, of the one that was stopped in its tools."""


@pytest.fixture(scope="module")
async def aftermath(fleet: Fleet) -> Aftermath:
    stack = fleet.stack
    here = stack.gateways[0].user("reader")
    there = stack.gateways[1].user("reader")
    with relay_before(stack.backing.redis_url) as frames, collecting() as collector:
        async with (
            stack.starting_gateway(**collector.environment) as traced,
            working(stack) as crew,
            AsyncExitStack() as readers,
        ):
            [worker] = await crew.join(RUNYARD_REDIS_URL=frames.url, **collector.environment)
            staying: dict[str, Reading] = {}
            for name, scripts in SCRIPTS.items():
                stack.standin.answers(*scripts, contains=f"<{name}>")
                api = traced.user("reader") if name == "mid-tool" else here
                reading = api.streaming("mortal", f"<{name}>", headers=TRACEPARENT if name == "mid-tool" else None)
                staying[name] = await readers.enter_async_context(reading)
            for name, text in AT_DEATH.items():
                await staying[name].until_text(text)
            await staying["mid-tool"].until(lambda event: event.type == "tool")
            await at_work(stack, run_of(staying["mid-tool"]), 3)
            await at_work(stack, run_of(staying["stopped in its tools"]), 2)

            metrics_port = free_port()
            [heir] = await crew.join(RUNYARD_METRICS_PORT=str(metrics_port), **collector.environment)
            frames.fall_silent()
            stack.standin.gate(END).release()
            for name in UNCLOSED:
                await settled(stack, run_of(staying[name]))
            assert crew.held_by(worker) == {run_of(staying[name]) for name in ABANDONED}
            crew.kill(worker)
            stopping = {name: asyncio.create_task(stop(here, run_of(staying[name]))) for name in STOPPED}
            frames.cut()
            stack.drop_frames(staying["frames lost"].stream_id)
            stack.open_gate(DEATH)

            moving = {
                name: await readers.enter_async_context(moved(reading, there)) for name, reading in staying.items()
            }
            await asyncio.gather(*(reading.rest(guard_s=GUARD_S) for reading in [*staying.values(), *moving.values()]))
            told = {
                name: Told(
                    account=await account_of(stack, here, run_of(staying[name])),
                    staying=staying[name].events,
                    moving=moving[name].events,
                )
                for name in SCRIPTS
            }
            cancels = {name: await stop for name, stop in stopping.items()}
            again = {name: await here.run("mortal", "and now?", runId=run_of(staying[name])) for name in STOPPED}
            calls = [call for call in stack.standin.calls if call.conversation == f"<{STOPPED[0]}>"]
            await eventually(lambda: invocations(collector.of(TRACE_ID)), "span of the run's end")
            await shows(metrics_port, "runyard_late_closes_total", len(UNCLOSED))
            counted = scraped(metrics_port)
    return Aftermath(
        told=told,
        heir=heir.events(),
        counted=counted,
        spans=collector.of(TRACE_ID),
        pids=(worker.pid, heir.pid),
        cancels=cancels,
        again=again,
        sent_again=calls[-1].messages,
    )


def invocations(spans: list[Span]) -> list[Span]:
    return [span for span in spans if span.name == "invoke_agent mortal"]


async def at_work(stack: Stack, run_id: str, effects: int) -> None:
    """All of its tools have acted that need not wait for others."""
    await eventually(lambda: len(stack.effects(run_id)) == effects, "tools at work")


async def stop(api: Api, run_id: str) -> httpx2.Response:
    return await api.post(f"/v1/runs/{run_id}/cancel", headers={"Prefer": "wait=60"})


async def settled(stack: Stack, run_id: str) -> None:
    """By its row: nobody has told the readers."""
    query = "SELECT id FROM agent_runs WHERE id = :run AND status = 'completed'"
    await eventually(lambda: stack.execute(query, run=run_id), "settled run")


@EVERY
async def test_both_readers_have_the_text_that_is_stored(aftermath: Aftermath, name: str) -> None:
    told = aftermath.told[name]
    for events in (told.staying, told.moving):
        assert answer_text(events) == told.account.text
        assert [is_terminal(event) for event in events] == [False] * (len(events) - 1) + [True]
        assert events[-1].type == "result"
        seqs = [event.seq for event in events if event.seq is not None]  # a gateway's rewind from the rows has none
        assert seqs == sorted(set(seqs))


@EVERY
async def test_nothing_happened_twice(aftermath: Aftermath, name: str) -> None:
    assert aftermath.told[name].account.miscounted() == []


async def test_the_death_is_counted_on_each_run_that_was_taken_over(aftermath: Aftermath) -> None:
    deaths = {name: told.account.deaths for name, told in aftermath.told.items()}
    assert deaths == {
        "first words": [[]],
        "mid-stream": [[]],
        "mid-tool": [["wait"]],  # the keyed one came back from its second try: it is acquitted
        "frames lost": [[]],
        "unclosed": [],
        "unclosed, frames lost": [],
        "stopped in its tools": [["wait"]],
        "stopped in its answer": [[]],
    }
    [burial] = [event for event in aftermath.heir if event["event"] == "worker died" and event["runs"]]
    assert burial["runs"] == len(ABANDONED)


async def test_words_that_were_not_committed_are_withdrawn_in_the_same_stream(aftermath: Aftermath) -> None:
    for name, kept in (("first words", ""), ("mid-stream", "Kept. ")):
        told = aftermath.told[name]
        assert [event.seq for event in told.staying] == list(range(1, len(told.staying) + 1))
        assert told.moving == told.staying
        [rewind] = [event for event in told.staying if event.type == "rewind"]
        assert json.loads(rewind.data)["length"] == len(kept)
        assert told.account.text in (kept + "Kept too.", kept + "All anew.")


async def test_calls_go_on_from_where_the_ledger_says(aftermath: Aftermath) -> None:
    account = aftermath.told["mid-tool"].account
    assert account.text == "Four. Done."
    assert account.count("charge") == 1
    assert not account.result("charge").is_error
    assert account.count("wait") == 1
    assert account.result("wait") == (INTERRUPTED, True)
    assert account.count("waited") == 0
    assert account.count("wait_keyed") == 2
    assert len({tuple(words) for words in account.effects if words[0] == "wait_keyed"}) == 1, "the same call and key"
    assert account.result("wait_keyed") == ("let through", False)
    assert account.count("book") == 1
    assert not account.result("book").is_error


async def test_readers_are_told_each_calls_end_once(aftermath: Aftermath) -> None:
    events = aftermath.told["mid-tool"].staying
    ended = [json.loads(event.data) for event in events if event.type == "tool"]
    assert sorted((each["name"], each["isError"]) for each in ended) == [
        ("book", False),
        ("charge", False),
        ("wait", True),
        ("wait_keyed", False),
    ]


@pytest.mark.parametrize(("name", "text"), [(STOPPED[0], "Three. "), (STOPPED[1], "")])
async def test_a_run_that_was_to_stop_ends_without_a_worker_and_goes_on_later(
    aftermath: Aftermath, name: str, text: str
) -> None:
    response = aftermath.cancels[name]
    assert (response.status_code, response.json()["status"], response.json()["text"]) == (200, "cancelled", text)
    assert aftermath.told[name].account.text == text
    assert (aftermath.again[name]["status"], aftermath.again[name]["text"]) == ("completed", "Back again.")


async def test_calls_of_a_run_that_was_to_stop_have_their_results(aftermath: Aftermath) -> None:
    account = aftermath.told["stopped in its tools"].account
    results = account.rows[-1]["content"]
    assert [block["type"] for block in results] == ["tool_result"] * 3
    assert [block["tool_use_id"] for block in results] == list(account.calls())
    assert not account.result("charge").is_error
    assert account.result("wait") == (INTERRUPTED, True)
    assert account.result("book") == (CANCELLED, True)
    assert [account.count(tool) for tool in ("charge", "wait", "book")] == [1, 1, 0]
    assert aftermath.sent_again[-1]["content"] == [*results, {"type": "text", "text": "and now?"}]


async def test_a_stream_that_lost_its_frames_begins_anew(aftermath: Aftermath) -> None:
    told = aftermath.told["frames lost"]
    [rewind] = [event for event in told.staying if event.type == "rewind"]
    assert json.loads(rewind.data) == {"toSeq": 0, "length": 0}
    assert rewind.seq is not None
    assert rewind.seq > 1_000_000
    assert told.account.text == "Kept. Kept too."


async def test_a_stream_that_its_settler_left_open_is_closed_late(aftermath: Aftermath) -> None:
    closed_late = [event for event in aftermath.heir if event["event"] == "stream closed late"]
    assert len(closed_late) == len(UNCLOSED)
    whole, lost = (aftermath.told[name] for name in UNCLOSED)
    assert whole.kinds.count("rewind") == 0
    assert lost.kinds.count("rewind") == 1
    assert lost.account.text == "Half, and half."


async def test_one_trace_shows_the_call_and_what_both_workers_did(aftermath: Aftermath) -> None:
    dead, heir = aftermath.pids
    [request] = [span for span in aftermath.spans if span.service == "runyard-gateway"]
    assert (request.name, request.parent_id) == ("POST /v1/agents/{agent}/runs", CALLER)
    of_dead = [span for span in aftermath.spans if span.pid == dead]
    assert sorted(span.name for span in of_dead) == ["chat claude-sonnet-4-5", "execute_tool charge"]
    [lost] = {span.parent_id for span in of_dead}  # died with its worker
    [invocation] = invocations(aftermath.spans)
    assert (invocation.pid, invocation.service, invocation.parent_id) == (heir, "runyard-worker", request.span_id)
    assert invocation.attributes["runyard.takeover"] is True
    assert invocation.attributes["runyard.outcome"] == "completed"
    assert invocation.span_id != lost
    for named in ("runyard.run.id", "runyard.invocation.id"):
        assert request.attributes[named] == invocation.attributes[named]
    of_heir = [span for span in aftermath.spans if span.pid == heir and span is not invocation]
    assert sorted(span.name for span in of_heir) == [
        "chat claude-sonnet-4-5",
        "execute_tool book",
        "execute_tool wait_keyed",
    ]
    assert {span.parent_id for span in of_heir} == {invocation.span_id}
    assert len(aftermath.spans) == 1 + len(of_dead) + 1 + len(of_heir)


async def test_the_heir_has_counted_what_it_did(aftermath: Aftermath) -> None:
    def count(name: str, **labels: str) -> float:
        return value(aftermath.counted, name, **labels)

    burials = [event for event in aftermath.heir if event["event"] == "worker died"]
    assert count("runyard_worker_deaths_total") == len(burials), "those that an earlier test left behind are among them"
    assert count("runyard_takeovers_total", agent="mortal") == len(TAKEN_OVER)
    assert count("runyard_late_closes_total") == len(UNCLOSED)
    settled = {"agent": "mortal", "status": "completed", "code": ""}
    assert count("runyard_invocations_settled_total", **settled) == len(TAKEN_OVER) + len(aftermath.again)
    begun_anew = [name for name in TAKEN_OVER if any(event.seq > 1_000_000 for event in aftermath.told[name].staying)]
    assert "frames lost" in begun_anew
    assert count("runyard_stream_resets_total") == len(begun_anew)
    withdrawn = [name for name in TAKEN_OVER if "rewind" in aftermath.told[name].kinds and name not in begun_anew]
    assert {"first words", "mid-stream"} <= set(withdrawn)
    assert count("runyard_stream_rewinds_total") == len(withdrawn)
