"""Why the model stopped, and what becomes of it: paused and cut turns."""

import asyncio
from typing import Any

import pytest
from tests.contract.execution.test_attempts import execution, run
from tests.contract.execution.worker import GUARD_S, Settled, Worker
from tests.fakes.models import QueuedModels
from tests.fakes.provider import MODEL, Script, asks, says, turn
from tests.fakes.rows import text, thinking, tool_use

from runyard import tool
from runyard.authoring.agents import agent
from runyard.db import claims, turns
from runyard.errors import HandOver
from runyard.runs import RunStatus
from runyard.transcript import request_messages
from runyard_workers.continuations import CUT_TURNS_MAX, PAUSES_MAX
from runyard_workers.providers.model import TextDelta, Usage

pytestmark = pytest.mark.anyio


def search(number: int) -> dict[str, Any]:
    return {
        "type": "server_tool_use",
        "id": f"srvtoolu_{number}",
        "name": "web_search",
        "input": {"query": "pylon"},
    }


def paused(number: int) -> Script:
    return [TextDelta("Searching. "), turn(text("Searching. "), search(number), stop_reason="pause_turn")]


SEARCH, PAUSED = search(1), paused(1)
FOUND = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []}
ENDED = [TextDelta("Found it."), turn(FOUND, text("Found it."))]
LIMIT = "The tool was not called: the output limit (max_tokens) cut this call off before its input was complete."
WROTE: list[str] = []


@tool
async def write_file(path: str = "", content: str = "") -> str:
    WROTE.append(path)
    return f"wrote {path}{content}"


@pytest.fixture(autouse=True)
def nothing_written() -> None:
    WROTE.clear()


def models(*scripts: Script) -> QueuedModels:
    return QueuedModels(scripts={MODEL: scripts})


# Paused turns -------------------------------------------------------------------------------------------------------


async def test_a_paused_turn_goes_back_as_it_is_and_the_answer_is_whole(worker: Worker) -> None:
    model = models(PAUSED, ENDED)
    settled = await run(worker, model)
    assert model.requests[1].messages == [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": [text("Searching. "), SEARCH]},
    ]
    assert [(row.role, row.stop_reason) for row in settled.rows[1:]] == [
        ("assistant", "pause_turn"),
        ("assistant", "end_turn"),
    ]
    assert settled.result["text"] == "Searching. Found it."
    assert (settled.result["finishReason"], settled.result["steps"]) == ("end_turn", 2)
    assert settled.run.usage == Usage(input_tokens=40, output_tokens=16).to_dict()
    assert settled.calls == []
    assert [message["role"] for message in request_messages(settled.rows)] == ["user", "assistant"]


async def test_a_turn_that_is_paused_for_ever_fails(worker: Worker) -> None:
    model = models(*map(paused, range(PAUSES_MAX + 1)))
    settled = await run(worker, model)
    assert settled.run.error is not None
    assert settled.run.error["code"] == "PROVIDER_ERROR"
    assert "paused its turn 8 times" in settled.run.error["message"]
    assert len(model.requests) == settled.run.steps == PAUSES_MAX
    assert settled.result["text"] == "Searching. " * PAUSES_MAX


async def test_pauses_count_as_steps(worker: Worker) -> None:
    settled = await run(worker, models(*map(paused, range(3))), max_steps=2)
    assert settled.run.error is not None
    assert (settled.run.error["code"], settled.run.steps) == ("AGENT_MAX_STEPS", 2)


async def test_a_pause_is_a_boundary_at_which_the_run_is_cancelled(worker: Worker) -> None:
    claim = await worker.claim(content="hi")
    held = execution(worker, claim, models(PAUSED), agent())

    async def cancel() -> None:
        held.cancel()

    worker.database.before[turns.append_turn] = cancel
    async with asyncio.timeout(GUARD_S):
        await held.run()
    settled = (await worker.settled(claim.run.id)).check()
    assert (settled.run.status, settled.result["text"]) == (RunStatus.CANCELLED, "Searching. ")


async def test_another_worker_sends_a_paused_turn_back(worker: Worker) -> None:
    claim = await worker.claim(content="hi")
    first = execution(worker, claim, models(PAUSED), agent())

    async def leave() -> None:
        first.leave()

    worker.database.before[turns.append_turn] = leave
    with pytest.raises(HandOver):
        await first.run()
    await worker.database.write(claims.give_back, claim.run.id, claim.run.generation)
    model = models(ENDED)
    async with asyncio.timeout(GUARD_S):
        await execution(worker, await worker.claim_queued(), model, agent()).run()
    settled = (await worker.settled(claim.run.id)).check()
    assert model.requests[0].messages[-1] == {"role": "assistant", "content": [text("Searching. "), SEARCH]}
    assert settled.result["text"] == "Searching. Found it."


async def test_a_failure_after_a_pause_leaves_a_run_that_goes_on(worker: Worker) -> None:
    settled = await run(worker, models(PAUSED), max_steps=1)
    assert settled.run.status is RunStatus.FAILED
    worker.script([], says("Sorry."))
    again = (await worker.run(content="and?", continues=settled.run.id)).check()
    assert worker.provider.requests[-1].messages[1]["content"] == [text("Searching. ")]
    assert again.run.status is RunStatus.COMPLETED


# Cut turns ----------------------------------------------------------------------------------------------------------


def cut(*whole: dict[str, Any], call_id: str = "toolu_cut", saying: str = "I write. ") -> Script:
    """Whole calls, then one that the output limit cuts."""
    calls = [*whole, tool_use(call_id, "write_file")]
    return asks(*calls, saying=saying, stop_reason="max_tokens", broken_inputs={call_id: LIMIT})


async def test_a_cut_call_never_runs_and_is_told_why(worker: Worker) -> None:
    whole = tool_use("toolu_1", "write_file", path="a.txt")
    settled = await run(worker, models(cut(whole), says("Done.")), tools=[write_file])
    assert WROTE == ["a.txt"]
    assert settled.results == [
        {"type": "tool_result", "tool_use_id": "toolu_1", "content": "wrote a.txt"},
        {"type": "tool_result", "tool_use_id": "toolu_cut", "content": LIMIT, "is_error": True},
    ]
    assert (settled.run.status, settled.result["finishReason"]) == (RunStatus.COMPLETED, "end_turn")


def ended_by_the_limit(settled: Settled, *, turns: int) -> None:
    assert (settled.run.status, settled.result["finishReason"]) == (RunStatus.COMPLETED, "max_tokens")
    assert settled.run.steps == turns
    assert WROTE == []


async def test_calls_that_are_cut_again_and_again_end_the_run_and_say_so(worker: Worker) -> None:
    scripts = [cut(call_id=f"toolu_{number}") for number in range(CUT_TURNS_MAX + 1)]
    ended_by_the_limit(await run(worker, models(*scripts), tools=[write_file]), turns=CUT_TURNS_MAX)


async def test_a_whole_turn_between_them_begins_the_count_anew(worker: Worker) -> None:
    whole = asks(tool_use("toolu_w", "write_file", path="b"))
    scripts = [cut(call_id="toolu_0"), cut(call_id="toolu_1"), whole, cut(call_id="toolu_2"), says("Done.")]
    settled = await run(worker, models(*scripts), tools=[write_file])
    assert (settled.result["finishReason"], WROTE) == ("end_turn", ["b"])


async def test_text_that_the_limit_cuts_is_the_answer(worker: Worker) -> None:
    settled = await run(worker, models(says("So far", stop_reason="max_tokens")))
    ended_by_the_limit(settled, turns=1)
    assert settled.result["text"] == "So far"


async def test_thinking_that_the_limit_cuts_is_kept_and_never_sent(worker: Worker) -> None:
    half = {"type": "thinking", "thinking": "I must"}
    settled = await run(worker, models([turn(half, stop_reason="max_tokens")]))
    ended_by_the_limit(settled, turns=1)
    assert settled.contents[-1] == [half]
    assert request_messages(settled.rows) == [{"role": "user", "content": "hi"}]


async def test_whole_thinking_before_a_cut_call_goes_back(worker: Worker) -> None:
    blocks = [thinking("Hm."), tool_use("toolu_cut", "write_file")]
    model = models([turn(*blocks, stop_reason="max_tokens", broken_inputs={"toolu_cut": LIMIT})], says("Done."))
    await run(worker, model, tools=[write_file])
    assert model.requests[1].messages[1]["content"] == blocks


@pytest.mark.parametrize("reason", ["refusal", "model_context_window_exceeded"])
async def test_other_stops_settle_with_their_reason_and_every_call_answered(worker: Worker, reason: str) -> None:
    calls = [tool_use("toolu_1", "write_file", path="a.txt")]
    settled = await run(worker, models(asks(*calls, saying="No.", stop_reason=reason)), tools=[write_file])
    assert (settled.run.status, settled.result["finishReason"]) == (RunStatus.COMPLETED, reason)
    assert [result["is_error"] for result in settled.results] == [True]
    assert WROTE == []
