"""Commits that fail, in each way and at each point of a run: nothing twice, nothing lost, the text equal."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.contract.execution.worker import GUARD_S, Settled, Worker
from tests.contract.store import states
from tests.fakes.databases import Fault
from tests.fakes.provider import asks, says
from tests.fakes.rows import text, tool_use

from runyard import RunContext, tool
from runyard.db import boundaries, claims, turns
from runyard.db.claims import Claim
from runyard.errors import GenerationLost, ProviderError
from runyard.runs import CallState, RunStatus
from runyard_workers import output
from runyard_workers.providers.model import TextDelta, Usage

pytestmark = pytest.mark.anyio

COMMITS = [turns.append_turn, turns.start_calls, turns.finish_call, boundaries.append_results, boundaries.end_turn]
AWAY, LOST_REQUEST, LOST_ANSWER = Fault.AWAY, Fault.LOST_REQUEST, Fault.LOST_ANSWER
ORDERS = [[AWAY], [LOST_REQUEST], [LOST_ANSWER], [AWAY, LOST_REQUEST, AWAY, LOST_ANSWER]]


class Effects:
    """Two tools that count what they did."""

    def __init__(self) -> None:
        self.done: list[str] = []

        @tool
        async def pay(ctx: RunContext, amount: int) -> str:
            self.done.append(f"pay {amount}")
            return f"paid {amount}"

        @tool
        def lookup(q: str) -> str:
            self.done.append(f"lookup {q}")
            return f"about {q}"

        self.tools = [pay, lookup]


def prepare(worker: Worker) -> Effects:
    effects = Effects()
    worker.script(
        asks(tool_use("toolu_1", "pay", amount=5), tool_use("toolu_2", "lookup", q="x"), saying="Let me check."),
        says("Paid, ", "and found."),
        tools=effects.tools,
    )
    return effects


def commit_name(value: Any) -> str:
    return value.__name__ if callable(value) else "+".join(fault.name.lower() for fault in value)


@pytest.mark.parametrize("faults", ORDERS, ids=commit_name)
@pytest.mark.parametrize("work", COMMITS, ids=commit_name)
async def test_a_commit_that_fails_costs_nothing(worker: Worker, work: Any, faults: list[Fault]) -> None:
    effects = prepare(worker)
    worker.database.faults[work] = list(faults)
    settled = (await worker.run()).check()
    assert worker.database.faults[work] == []
    assert settled.contents[1:] == [
        [
            text("Let me check."),
            tool_use("toolu_1", "pay", amount=5),
            tool_use("toolu_2", "lookup", q="x"),
        ],
        [
            {"type": "tool_result", "tool_use_id": "toolu_1", "content": "paid 5"},
            {"type": "tool_result", "tool_use_id": "toolu_2", "content": "about x"},
        ],
        [text("Paid, and found.")],
    ]
    assert sorted(effects.done) == ["lookup x", "pay 5"]
    assert (settled.run.status, settled.run.steps) == (RunStatus.COMPLETED, 2)
    assert settled.run.usage["input_tokens"] == 20 * len(worker.provider.requests)
    assert {call.state for call in settled.calls} == {CallState.FINISHED}


@pytest.mark.parametrize("work", [turns.append_turn, boundaries.end_turn], ids=commit_name)
@pytest.mark.parametrize(("fault", "calls"), [(AWAY, 2), (LOST_ANSWER, 2), (LOST_REQUEST, 3)])
async def test_a_turn_is_paid_for_again_only_if_it_was_lost(
    worker: Worker, work: Any, fault: Fault, calls: int
) -> None:
    prepare(worker)
    worker.database.faults[work] = [fault]
    settled = (await worker.run()).check()
    assert len(worker.provider.requests) == calls
    paid = Usage(input_tokens=20 * calls, output_tokens=8 * calls).to_dict()
    assert settled.result["usage"] == settled.run.usage == paid
    assert settled.result["steps"] == settled.run.steps == 2


async def test_text_that_was_not_sent_yet_is_withdrawn_too(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "FLUSH_BEFORE_COMMIT_S", 0.01)

    def toggle_redis() -> None:
        worker.store.away = not worker.store.away

    worker.script([worker.store.applied, toggle_redis, *says("Said ", "once.")])
    worker.database.faults[boundaries.end_turn] = [LOST_REQUEST]
    settled = (await worker.run()).check()
    assert len(worker.provider.requests) == 2
    assert settled.order[2:] == ["", "", "rewind", "status", "", "", "message", "result"]
    assert settled.result["text"] == "Said once."


async def test_a_slow_sibling_survives_a_commit_in_doubt(worker: Worker) -> None:
    let_go = asyncio.Event()
    effects = prepare(worker)

    @tool
    async def slow() -> str:
        await let_go.wait()
        return "slow"

    worker.script(
        asks(tool_use("toolu_1", "slow"), tool_use("toolu_2", "lookup", q="x")),
        says("Done."),
        tools=[slow, *effects.tools],
    )
    worker.database.faults[turns.finish_call] = [LOST_REQUEST, LOST_ANSWER]
    running = asyncio.create_task(worker.run())
    await worker.database.wrote(turns.finish_call)
    let_go.set()
    settled = (await running).check()
    assert [result["content"] for result in settled.results] == ["slow", "about x"]


async def test_reading_the_run_anew_may_fail_too(worker: Worker) -> None:
    effects = prepare(worker)
    worker.database.faults[boundaries.append_results] = [LOST_REQUEST]
    worker.database.faults[turns.load_held] = [AWAY, AWAY]
    worker.database.faults[turns.load_messages] = [AWAY]
    worker.database.faults[turns.load_calls] = [AWAY]
    settled = (await worker.run()).check()
    assert settled.run.status is RunStatus.COMPLETED
    assert sorted(effects.done) == ["lookup x", "pay 5"]


@pytest.mark.parametrize("faults", ORDERS, ids=commit_name)
async def test_a_failure_is_settled_once(worker: Worker, faults: list[Fault]) -> None:
    worker.script([TextDelta("Half"), ProviderError("the provider answered 400: no", status=400)])
    worker.database.faults[boundaries.fail_turn] = list(faults)
    settled = (await worker.run()).check()
    assert settled.run.status is RunStatus.FAILED
    assert settled.order[-1] == "error"


async def test_the_ending_of_a_settlement_in_doubt_is_the_stored_one(worker: Worker) -> None:
    prepare(worker)
    worker.database.faults[boundaries.end_turn] = [LOST_ANSWER]
    settled = (await worker.run()).check()
    assert settled.events("result") == [settled.result]
    assert settled.events("message")[-1] == {"seq": 4, "role": "assistant"}
    assert len(worker.provider.requests) == 2


def thief(worker: Worker, claim: Claim, snapshots: list[Any]) -> Callable[[], Awaitable[None]]:
    """Takes the run away and gives it to another worker."""

    async def steal() -> None:
        await worker.database.write(claims.give_back, claim.run.id, claim.run.generation)
        snapshots.append(await worker.claim_queued())
        snapshots.append(await states.contents(worker.database))

    return steal


@pytest.mark.parametrize("work", COMMITS, ids=commit_name)
async def test_a_run_that_changed_hands_is_written_no_more(worker: Worker, work: Any) -> None:
    prepare(worker)
    claim = await worker.claim()
    snapshots: list[Any] = []
    worker.database.before[work] = thief(worker, claim, snapshots)
    async with asyncio.timeout(GUARD_S):
        with pytest.raises(GenerationLost):
            await worker.execution(claim).run()
    taken, after = snapshots
    assert await states.contents(worker.database) == after
    settled = (await worker.execute(taken)).check()
    assert settled.run.status is RunStatus.COMPLETED


async def test_a_reset_of_a_lost_run_writes_nothing(worker: Worker) -> None:
    prepare(worker)
    claim = await worker.claim()
    snapshots: list[Any] = []
    await worker.database.write(claims.give_back, claim.run.id, claim.run.generation)
    second = await worker.claim_queued()
    worker.server.now = "redis-2"
    worker.database.before[turns.set_frame_base] = thief(worker, second, snapshots)
    async with asyncio.timeout(GUARD_S):
        with pytest.raises(GenerationLost):
            await worker.execution(second).run()
    taken, after = snapshots
    assert await states.contents(worker.database) == after
    assert (await worker.store.info(claim.invocation.stream_id)).last == 0
    (await worker.execute(taken)).check()


@pytest.mark.parametrize("faults", ORDERS, ids=commit_name)
async def test_a_reset_whose_commit_fails_is_written_once(worker: Worker, faults: list[Fault]) -> None:
    prepare(worker)
    claim = await worker.claim()
    await worker.database.write(claims.give_back, claim.run.id, claim.run.generation)
    worker.server.now = "redis-2"
    worker.database.faults[turns.set_frame_base] = list(faults)
    settled: Settled = (await worker.execute(await worker.claim_queued())).check()
    assert settled.frames[0].seq == settled.invocation.frame_base == 1_000_000
    assert settled.invocation.redis_run_id == "redis-2"
