"""A run through the real SDK against the stand-in: failures on the wire, and what becomes of them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from tests.contract.execution.worker import GUARD_S, Settled, Worker
from tests.fakes.rows import text
from tests.standin import Answer, CutHow, Standin, cut, event, fail, finds, hold, ping_until, refuses, says, silent

from runyard import tool
from runyard.authoring.agents import agent
from runyard.runs import RunStatus
from runyard_workers import turn as turn_module
from runyard_workers.execution import Execution
from runyard_workers.providers.registry import Providers

pytestmark = pytest.mark.anyio

HEAD, OTHER = "claude-sonnet-5-5", "claude-haiku-4-5"
KEY = "sk-ant-test-5f0e1d"
WROTE: list[str] = []
WRITE = {"type": "tool_use", "id": "toolu_1", "name": "write_file", "input": {}}


@tool
async def write_file(path: str = "", content: str = "") -> str:
    WROTE.append(path)
    return f"wrote {path}{content}"


@asynccontextmanager
async def provided(worker: Worker, standin: Standin, *, key: str = KEY, **definition: Any) -> AsyncIterator[Any]:
    """A function that executes one run to its end."""
    providers = Providers(environ={"ANTHROPIC_API_KEY": key, "ANTHROPIC_BASE_URL": standin.base_url})
    worker.agent = agent(**{"model": HEAD, "tools": [write_file]} | definition)

    async def execute() -> Settled:
        claim = await worker.claim(content="hi")
        async with asyncio.timeout(GUARD_S):
            await Execution(replace(worker.services, providers=providers), claim, worker.loaded).run()
        return (await worker.settled(claim.run.id)).check()

    WROTE.clear()
    try:
        yield execute
    finally:
        await providers.aclose()


FAILURES = {
    "refused": refuses(529, headers={"retry-after-ms": "1"}),
    "rate": refuses(429, headers={"retry-after-ms": "1"}),
    "error before content": says("never").before(1, fail()),
    "error after text": says(*"twenty deltas and no more", fail()),
    "error in a call": says("I write.").calls("write_file", deltas=('{"path": "a.t', fail())),
    "cut before content": says("never").before(1, cut(CutHow.CLOSE)),
    "cut after text": says("Half an ", cut(CutHow.RESET), "answer"),
    "cut in a call": says("I write.").calls("write_file", deltas=('{"path": "a.t', cut(CutHow.END))),
    "cut at the end": says("Whole?").before("message_stop", cut(CutHow.CLOSE)),
}


@pytest.mark.parametrize("broken", FAILURES.values(), ids=FAILURES.keys())
async def test_a_failure_on_the_wire_is_no_end(worker: Worker, broken: Answer) -> None:
    async with Standin() as standin, provided(worker, standin) as execute:
        standin.answers(broken, broken, says("The answer."))
        settled = await execute()
        assert settled.run.status is RunStatus.COMPLETED
        assert settled.contents == ["hi", [text("The answer.")]]
        assert [call.body for call in standin.calls] == [standin.calls[0].body] * 3
        assert WROTE == []


@pytest.mark.parametrize("given", [{}, {"text": None}])
async def test_a_text_block_without_text_is_an_empty_one(worker: Worker, given: dict[str, None]) -> None:
    """As compatible providers send it; the run can be read and goes on."""
    content = {"type": "text", **given}
    textless = silent.then(
        event("content_block_start", {"type": "content_block_start", "index": 0, "content_block": content}),
        event("content_block_stop", {"type": "content_block_stop", "index": 0}),
        event("content_block_start", {"type": "content_block_start", "index": 1, "content_block": WRITE}),
        event("content_block_stop", {"type": "content_block_stop", "index": 1}),
    )
    async with Standin() as standin, provided(worker, standin) as execute:
        standin.answers(textless.stops("tool_use"), says("The answer."))
        settled = await execute()
        assert settled.contents[1] == [text(""), WRITE]
        assert settled.contents[-1] == [text("The answer.")]
        assert standin.calls[1].messages[1]["content"] == [WRITE]


async def test_the_next_model_is_asked_when_the_first_is_overloaded(worker: Worker) -> None:
    async with Standin() as standin, provided(worker, standin, fallbacks=[OTHER]) as execute:
        standin.answers(*[FAILURES["error after text"]] * 4, model=HEAD)
        standin.answers(says("The answer."), model=OTHER)
        settled = await execute()
        assert settled.contents[-1] == [text("The answer.")]
        assert settled.rows[-1].model == OTHER
        assert [call.body["model"] for call in standin.calls] == [HEAD] * 4 + [OTHER]


async def test_a_refused_key_is_asked_once_a_model_and_never_shown(worker: Worker) -> None:
    async with Standin() as standin, provided(worker, standin, fallbacks=[OTHER]) as execute:
        standin.answers(refuses(401, message=f"invalid {KEY}"), refuses(403, message=f"not with {KEY}"))
        settled = await execute()
        assert settled.run.error is not None
        assert (settled.run.error["code"], settled.run.error["retryable"]) == ("FALLBACK_EXHAUSTED", False)
        assert [error["status"] for error in settled.result["errors"]] == [401, 403]
        assert all("ANTHROPIC_API_KEY" in error["message"] for error in settled.result["errors"])
        assert KEY.encode() not in b"".join(frame.data for frame in settled.frames)
        assert len(standin.calls) == 2


async def test_a_stalled_connection_is_given_up_and_the_call_made_anew(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A connection that is slow to be made counts as stalled, too; the call that is made anew may take its time."""
    dead_connection = turn_module.dead_connection
    async with Standin() as standin, provided(worker, standin) as execute:
        stall = standin.gate("never")

        def give_up(silence_s: float) -> Exception:
            if stall.arrivals:
                monkeypatch.setattr(turn_module, "DEAD_AFTER_S", GUARD_S)
            return dead_connection(silence_s)

        standin.answers(says("The SDK is loaded, which takes seconds."))
        await execute()
        monkeypatch.setattr(turn_module, "DEAD_AFTER_S", 0.5)
        monkeypatch.setattr(turn_module, "dead_connection", give_up)
        stalled, whole = says("Half an ", hold(stall.name), "answer"), says("The answer.")
        standin.answers_with(lambda _: whole if stall.arrivals else stalled)
        settled = await execute()
        assert settled.contents[-1] == [text("The answer.")]
        assert await (await standin.request(2)).ended() == "client_closed"


async def test_pings_alone_keep_a_connection_and_are_silence_all_the_same(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turn_module, "DEAD_AFTER_S", 1.0)
    async with Standin() as standin, provided(worker, standin, timeout_s=2.0) as execute:
        standin.answers(says("Half an ", ping_until("never"), "answer"))
        settled = await execute()
        assert settled.run.error is not None
        assert settled.run.error["code"] == "RUN_TIMEOUT"
        assert len(standin.calls) == 1


async def test_a_paused_turn_goes_back_unchanged_until_it_ends(worker: Worker) -> None:
    async with Standin() as standin, provided(worker, standin, tools=[]) as execute:
        standin.answers(
            says("Searching. ").searches("pylon", call_id="srvtoolu_1").stops("pause_turn"),
            finds(call_id="srvtoolu_1").says("More. ").searches("gate", call_id="srvtoolu_2").stops("pause_turn"),
            finds(call_id="srvtoolu_2").says("Found."),
        )
        settled = await execute()
        assert settled.run.error is None
        assert settled.result["text"] == "Searching. More. Found."
        assert settled.contents[1][1]["input"] == {"query": "pylon"}
        assert [message["role"] for message in standin.calls[2].messages] == ["user", "assistant"]
        assert {name: settled.result["usage"][name] for name in standin.usage()} == standin.usage()


async def test_a_call_that_the_limit_cuts_is_told_so_and_its_whole_sibling_runs(worker: Worker) -> None:
    async with Standin() as standin, provided(worker, standin) as execute:
        standin.answers(
            says("I write.")
            .calls("write_file", {"path": "a.txt"})
            .calls("write_file", deltas=('{"path":"b.txt","content":"abc',))
            .stops("max_tokens"),
            says("Done."),
        )
        settled = await execute()
        assert WROTE == ["a.txt"]
        assert settled.result["finishReason"] == "end_turn"
        assert settled.results[1]["is_error"]
        assert "the output limit (max_tokens) cut this call off" in settled.results[1]["content"]
