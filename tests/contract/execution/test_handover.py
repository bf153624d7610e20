"""A worker that leaves gives each run up where nothing is under way; the next one goes on as if nothing had been."""

import asyncio
import threading
from typing import Any

import pytest
from tests.contract.execution.crew import Crew, reached, stop
from tests.contract.execution.worker import GUARD_S, Settled, Worker
from tests.contract.store import states
from tests.fakes.databases import Fault
from tests.fakes.provider import MODEL, asks, says
from tests.fakes.rows import text, tool_use

from runyard import RunContext, tool
from runyard.authoring.tools import Tool
from runyard.blocks import INTERRUPTED
from runyard.db import boundaries, claims, turns
from runyard.db.claims import Claim
from runyard.lifecycle import cancelling
from runyard.lifecycle.accept import accept_turn
from runyard.runs import CallState, RunStatus
from runyard_workers import output, runner
from runyard_workers.prices import cost
from runyard_workers.providers.model import Usage, UsageSoFar
from runyard_workers.runner import Runner

pytestmark = pytest.mark.anyio

LONG_S = 3600.0


class Looks:
    """How often the worker has stopped what may be stopped, since the time to leave was over."""

    def __init__(self) -> None:
        self._looked = asyncio.Event()

    def note(self) -> None:
        self._looked.set()

    async def again(self) -> None:
        self._looked.clear()
        await reached(self._looked)


@pytest.fixture(autouse=True)
async def looks(monkeypatch: pytest.MonkeyPatch) -> Looks:
    monkeypatch.setattr(runner, "LEAVE_POLL_S", 0.005)
    looks, stop = Looks(), Runner._stop

    async def noted_stop(self: Runner, leaving: Any) -> None:
        await stop(self, leaving)
        looks.note()

    monkeypatch.setattr(Runner, "_stop", noted_stop)
    return looks


class Gate:
    """A point in a script or a tool: `reached`, and then it waits for `open`."""

    def __init__(self) -> None:
        self.reached = asyncio.Event()
        self.open = asyncio.Event()

    @property
    def steps(self) -> list[Any]:
        return [self.reached.set, self.open]

    async def __call__(self) -> None:
        self.reached.set()
        await self.open.wait()


def looking() -> tuple[Gate, Tool]:
    """A tool that waits at a gate."""
    gate = Gate()

    @tool
    async def look() -> str:
        await gate()
        return "seen"

    return gate, look


class Leaving:
    """A worker with one run, that is told to leave."""

    def __init__(self, worker: Worker, claim: Claim) -> None:
        self.worker = worker
        self.claim = claim
        self.crew = Crew(worker=worker)
        self.crew.start(claim)
        self.hurry = asyncio.Event()

    def leaves(self, grace_s: float = LONG_S) -> "asyncio.Task[None]":
        return asyncio.create_task(self.crew.runner.hand_over_all(grace_s, self.hurry))

    async def taken(self) -> Claim:
        """The run was given up once, with a message; by the next worker, claimed."""
        await self.crew.left()
        assert self.crew.publisher.woken == [(self.claim.run.id, self.claim.invocation.id, "default")]
        return await self.worker.claim_queued()

    async def goes_on(self) -> Settled:
        seen = await self.worker.seen(self.claim)
        settled = (await self.worker.execute(await self.taken())).check(seen=seen)
        assert settled.run.generation == self.claim.run.generation + 2
        assert settled.run.status is RunStatus.COMPLETED
        return settled


async def done(task: "asyncio.Task[None]") -> None:
    async with asyncio.timeout(GUARD_S):
        await task


async def test_a_run_is_given_up_behind_its_tools(worker: Worker, looks: Looks) -> None:
    """Nothing is withdrawn, nothing is done twice, and its readers see one stream."""
    gate, runs = Gate(), []

    @tool
    async def pay(ctx: RunContext) -> str:
        runs.append("pay")
        await ctx.stream.write("paying")
        await gate()
        return "paid"

    worker.script(asks(tool_use("toolu_1", "pay"), saying="Let me pay. "), says("Paid."), tools=[pay])
    here = Leaving(worker, await worker.claim())
    await reached(gate.reached)
    leaving = here.leaves(0)
    await looks.again()  # the time is over: a tool that may have acted is waited for
    assert not leaving.done()
    gate.open.set()
    await done(leaving)
    claim = await here.taken()
    assert claim.invocation.last_frame == 8
    settled = (await worker.execute(claim)).check()
    assert (runs, len(worker.provider.requests)) == (["pay"], 2)
    assert settled.order == [
        *["status", "message", "", "message", "tool_start", "output", "tool", "message"],
        *["status", "", "message", "result"],
    ]
    assert settled.result["text"] == "Paid."


async def test_calls_that_have_not_started_are_left_to_the_next_worker(worker: Worker) -> None:
    gate, runs = Gate(), []

    @tool
    async def pay(order: str) -> str:
        runs.append(order)
        return f"paid {order}"

    asked = asks(tool_use("toolu_1", "pay", order="once"), saying="Let me pay. ")
    worker.script([*asked[:1], *gate.steps, *asked[1:]], says("Paid."), tools=[pay])
    here = Leaving(worker, await worker.claim())
    await reached(gate.reached)
    leaving = here.leaves()
    await asyncio.sleep(0)
    gate.open.set()
    await done(leaving)
    assert runs == []
    settled = await here.goes_on()
    assert (runs, len(worker.provider.requests)) == (["once"], 2)
    assert "rewind" not in settled.order
    assert settled.order.count("tool_start") == 1


async def test_an_exclusive_call_is_the_next_workers_when_its_turn_has_not_come(worker: Worker) -> None:
    """A batch of tools that each take long must not keep a worker for the sum of their times."""
    gate, runs = Gate(), []

    @tool(exclusive=True)
    async def pay(order: str) -> str:
        runs.append(order)
        if len(runs) == 1:
            await gate()
        return f"paid {order}"

    calls = [tool_use(f"toolu_{order}", "pay", order=order) for order in ("a", "b")]
    worker.script(asks(*calls), says("Paid."), tools=[pay])
    here = Leaving(worker, await worker.claim())
    await reached(gate.reached)
    leaving = here.leaves()
    await asyncio.sleep(0)
    gate.open.set()
    await done(leaving)
    assert runs == ["a"]
    settled = await here.goes_on()
    assert [result["content"] for result in settled.results] == ["paid a", "paid b"]
    assert (runs, "rewind" in settled.order) == (["a", "b"], False)
    assert [event["id"] for event in settled.events("tool")] == ["toolu_a", "toolu_b"]


async def test_a_turn_that_ends_in_time_settles_here(worker: Worker) -> None:
    gate = Gate()
    worker.script([*says("Whole")[:1], *gate.steps, *says("Whole", ".")[1:]])
    here = Leaving(worker, await worker.claim())
    await reached(gate.reached)
    leaving = here.leaves()
    await asyncio.sleep(0)
    gate.open.set()
    await done(leaving)
    await here.crew.left()
    settled = (await worker.settled(here.claim.run.id)).check()
    assert (settled.run.status, settled.run.generation) == (RunStatus.COMPLETED, here.claim.run.generation)
    assert here.crew.publisher.woken == []


async def test_a_model_call_that_takes_too_long_is_made_anew(worker: Worker) -> None:
    """Both calls are paid for."""
    begun = asyncio.Event()
    counted = UsageSoFar(Usage(input_tokens=27, output_tokens=1), MODEL)
    worker.script([counted, *says("Half an ")[:1], begun.set, asyncio.Event()])
    here = Leaving(worker, await worker.claim())
    await reached(begun)
    seen = await worker.seen(here.claim)
    await done(here.leaves(0.02))
    assert worker.provider.open_streams == 0
    worker.script(says("A whole ", "answer.", usage=Usage(input_tokens=20, output_tokens=8)))
    settled = (await worker.execute(await here.taken())).check(seen=seen)
    assert settled.events("rewind") == [{"toSeq": 0, "length": 0}]
    assert settled.result["text"] == "A whole answer."
    paid = Usage(input_tokens=47, output_tokens=11, output_tokens_estimated=2)
    assert settled.result["usage"] == settled.run.usage == settled.invocation.usage == paid.to_dict()
    assert settled.run.cost == settled.result["cost"] == cost(MODEL, paid).to_dict()
    assert settled.result["steps"] == settled.run.steps == 1


async def test_when_the_time_is_over_a_tool_that_may_run_again_is_stopped(worker: Worker) -> None:
    begun, runs = asyncio.Event(), []

    @tool(idempotent=True)
    async def fetch(ctx: RunContext) -> str:
        runs.append(ctx.idempotency_key)
        if len(runs) == 1:
            begun.set()
            await asyncio.Event().wait()
        return "fetched"

    worker.script(asks(tool_use("toolu_1", "fetch")), says("Done."), tools=[fetch])
    here = Leaving(worker, await worker.claim())
    await reached(begun)
    await done(here.leaves(0.02))
    settled = await here.goes_on()
    assert [result["content"] for result in settled.results] == ["fetched"]
    assert len(runs) == 2
    assert len(set(runs)) == 1


async def test_a_tool_that_has_its_result_holds_up_nobody(worker: Worker) -> None:
    """It must not be cut, and it cannot be any more: what still runs may run again."""
    gate, runs = Gate(), []

    @tool(idempotent=True)
    async def fetch() -> str:
        runs.append("fetch")
        if runs.count("fetch") == 1:
            await gate()
        return "fetched"

    @tool
    async def pay() -> str:
        runs.append("pay")
        return "paid"

    worker.script(asks(tool_use("toolu_1", "fetch"), tool_use("toolu_2", "pay")), says("Done."), tools=[fetch, pay])
    here = Leaving(worker, await worker.claim())
    await reached(gate.reached)
    await worker.database.wrote(turns.finish_call)
    await done(here.leaves(0))
    settled = await here.goes_on()
    assert [result["content"] for result in settled.results] == ["fetched", "paid"]
    assert sorted(runs) == ["fetch", "fetch", "pay"]


async def test_one_tool_that_must_not_be_cut_keeps_its_batch(
    worker: Worker, block: threading.Event, looks: Looks
) -> None:
    """Sync or async: the run waits for it, and then nothing of the batch is lost."""
    loop = asyncio.get_running_loop()
    gate, started, runs = Gate(), asyncio.Event(), []

    @tool(idempotent=True)
    async def fetch() -> str:
        runs.append("fetch")
        await gate()
        return "fetched"

    @tool
    def pay() -> str:
        runs.append("pay")
        loop.call_soon_threadsafe(started.set)
        block.wait(GUARD_S)
        return "paid"

    worker.script(asks(tool_use("toolu_1", "fetch"), tool_use("toolu_2", "pay")), says("Done."), tools=[fetch, pay])
    here = Leaving(worker, await worker.claim())
    await reached(gate.reached)
    await reached(started)
    leaving = here.leaves(0)
    await looks.again()
    assert not leaving.done()
    block.set()
    gate.open.set()
    await done(leaving)
    settled = await here.goes_on()
    assert [result["content"] for result in settled.results] == ["fetched", "paid"]
    assert sorted(runs) == ["fetch", "pay"]


async def test_a_result_that_is_being_stored_is_not_lost(worker: Worker, looks: Looks) -> None:
    """The last result of a batch is committed with the row: until then the run must not be dropped."""
    gate = Gate()

    @tool
    async def pay() -> str:
        return "paid"

    worker.script(asks(tool_use("toolu_1", "pay")), says("Done."), tools=[pay])
    worker.database.before[boundaries.append_results] = gate
    here = Leaving(worker, await worker.claim())
    await reached(gate.reached)
    leaving = here.leaves(0)
    await looks.again()
    assert not leaving.done()
    gate.open.set()
    await done(leaving)
    assert [result["content"] for result in (await here.goes_on()).results] == ["paid"]


async def test_a_second_signal_waits_for_nothing(worker: Worker) -> None:
    begun, runs = asyncio.Event(), []

    @tool
    async def pay() -> str:
        runs.append("pay")
        begun.set()
        await asyncio.Event().wait()
        return "paid"

    worker.script(asks(tool_use("toolu_1", "pay")), says("Sorry."), tools=[pay])
    here = Leaving(worker, await worker.claim())
    await reached(begun)
    leaving = here.leaves()
    await asyncio.sleep(0)
    assert not leaving.done()
    here.hurry.set()
    await done(leaving)
    settled = await here.goes_on()
    assert ([result["content"] for result in settled.results], runs) == ([INTERRUPTED], ["pay"])


async def test_a_run_that_is_being_given_up_is_not_dropped_as_well(worker: Worker, looks: Looks) -> None:
    """The time is over between the boundary and the commit of the hand-over."""
    tool_gate, commit_gate = Gate(), Gate()

    @tool
    async def pay() -> str:
        await tool_gate()
        return "paid"

    worker.script(asks(tool_use("toolu_1", "pay"), saying="Let me pay. "), says("Paid."), tools=[pay])
    worker.database.before[claims.give_back] = commit_gate
    here = Leaving(worker, await worker.claim())
    await reached(tool_gate.reached)
    leaving = here.leaves(0)
    tool_gate.open.set()
    await reached(commit_gate.reached)
    await looks.again()
    commit_gate.open.set()
    await done(leaving)
    claim = await here.taken()
    assert claim.invocation.last_frame is not None
    assert "rewind" not in (await worker.execute(claim)).check().order


async def test_a_run_claimed_at_the_last_moment_leaves_too(worker: Worker) -> None:
    worker.script(says("Never said here."))
    first, begun = await worker.claim(), asyncio.Event()
    here = Crew(worker=worker)
    worker.script([begun.set, asyncio.Event()])
    here.runner._services = worker.services
    here.start(first)
    await reached(begun)
    hurry = asyncio.Event()
    leaving = asyncio.create_task(here.runner.hand_over_all(LONG_S, hurry))
    await asyncio.sleep(0)
    late = await worker.claim()
    here.start(late)
    await worker.database.wrote(claims.give_back)
    assert here.publisher.woken == [(late.run.id, late.invocation.id, "default")]
    hurry.set()
    await done(leaving)


async def test_steering_that_waits_is_handed_over_with_the_run(worker: Worker) -> None:
    gate, look = looking()
    worker.script(asks(tool_use("toolu_1", "look")), says("One."), says("Two."), tools=[look])
    here = Leaving(worker, await worker.claim(content="go"))
    await reached(gate.reached)
    leaving = here.leaves()
    sent = states.new_turn(continues=here.claim.run.id, content="wait")
    await worker.database.write(accept_turn, sent)
    gate.open.set()
    await done(leaving)
    late = states.new_turn(continues=here.claim.run.id, content="and that")
    assert (await worker.database.write(accept_turn, late)).is_steering
    settled = await here.goes_on()
    assert settled.contents[2][-1] == text("wait")
    assert settled.contents[4] == "and that"
    assert settled.events("steered") == [{"inputIds": [sent.input_id]}, {"inputIds": [late.input_id]}]


async def test_a_run_that_is_to_stop_stops_instead(worker: Worker) -> None:
    begun = asyncio.Event()
    worker.script([*says("Half")[:1], begun.set, asyncio.Event()])
    here = Leaving(worker, await worker.claim())
    await reached(begun)
    leaving = here.leaves()
    await stop(worker, here.claim.run.id)
    here.crew.runner.look_at(here.claim.run.id)
    await done(leaving)
    await here.crew.left()
    settled = (await worker.settled(here.claim.run.id)).check()
    assert (settled.run.status, settled.result["text"]) == (RunStatus.CANCELLED, "Half")


@pytest.mark.parametrize("instead", ["", "instead"], ids=["for good", "for another call"])
@pytest.mark.parametrize("faults", [[], [Fault.AWAY]], ids=["", "away"])
async def test_a_cancel_that_comes_as_the_run_is_given_up_waits_for_no_turn(
    worker: Worker, instead: str, faults: list[Fault]
) -> None:
    """Where the database is away again the next worker stops it."""
    gate, look = looking()
    worker.script(asks(tool_use("toolu_1", "look"), saying="Let me look. "), says("Instead."), tools=[look])
    here = Leaving(worker, await worker.claim(content="go"))
    run_id = here.claim.run.id

    async def cancel() -> None:
        await stop(worker, run_id, instead=instead)
        worker.database.faults[cancelling.cancel_given_back] = faults[:]

    worker.database.before[claims.give_back] = cancel
    await reached(gate.reached)
    leaving = here.leaves()
    gate.open.set()
    await done(leaving)
    await here.crew.left()
    settled = await here.crew.stopped(run_id, instead=instead, away=bool(faults))
    assert [result["content"] for result in settled.results] == ["seen"]


async def test_without_redis_the_run_leaves_and_its_frames_are_made_good(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output, "FLUSH_BEFORE_COMMIT_S", 0.01)
    gate, look = looking()
    worker.script(asks(tool_use("toolu_1", "look"), saying="Let me look. "), says("Seen."), tools=[look])
    here = Leaving(worker, await worker.claim())
    await reached(gate.reached)
    seen = await worker.seen(here.claim)
    worker.store.away = True
    leaving = here.leaves()
    await asyncio.sleep(0)
    gate.open.set()
    await done(leaving)
    worker.store.away = False
    claim = await here.taken()
    assert claim.invocation.last_frame is None
    settled = (await worker.execute(claim)).check(seen=seen)
    assert settled.events("rewind") == [{"toSeq": 3, "length": len("Let me look. ")}]
    assert settled.result["text"] == "Seen."


@pytest.mark.parametrize("fault", Fault)
async def test_a_hand_over_that_fails_is_tried_again(worker: Worker, fault: Fault) -> None:
    gate, look = looking()
    worker.script(asks(tool_use("toolu_1", "look")), says("Seen."), tools=[look])
    here = Leaving(worker, await worker.claim())
    await reached(gate.reached)
    worker.database.faults[claims.give_back] = [fault]
    leaving = here.leaves()
    await asyncio.sleep(0)
    gate.open.set()
    await done(leaving)
    assert worker.database.faults[claims.give_back] == []
    settled = (await worker.execute(await worker.claim_queued())).check()
    assert settled.result["text"] == "Seen."
    assert settled.run.generation == here.claim.run.generation + 2


async def test_a_hand_over_that_the_database_refuses_is_left_to_the_others(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "GIVE_BACK_S", 0.0)
    gate, look = looking()
    worker.script(asks(tool_use("toolu_1", "look")), says("Seen."), tools=[look])
    here = Leaving(worker, await worker.claim())
    await reached(gate.reached)
    worker.database.faults[claims.give_back] = [Fault.AWAY]
    leaving = here.leaves()
    await asyncio.sleep(0)
    gate.open.set()
    await done(leaving)
    assert here.crew.publisher.woken == []
    row = await states.run_row(worker.database, here.claim.run.id)
    assert (row.status, row.worker_id) == (RunStatus.RUNNING, worker.worker_id)


async def test_many_runs_leave_together(worker: Worker) -> None:
    """Each at a point of its own, and no call is made twice."""
    count, runs = 12, []
    all_began, gate = asyncio.Event(), asyncio.Event()

    @tool
    async def pay(ctx: RunContext) -> str:
        runs.append(ctx.run_id)
        if len(runs) == count:
            all_began.set()
        await gate.wait()
        return "paid"

    worker.script(asks(tool_use("toolu_1", "pay"), saying="Let me pay. "), says("Paid."), tools=[pay])
    crew = Crew(worker=worker)
    found = [await worker.claim() for _ in range(count)]
    for claim in found:
        crew.runner.start(claim)
    await reached(all_began)
    leaving = asyncio.create_task(crew.runner.hand_over_all(LONG_S, asyncio.Event()))
    await asyncio.sleep(0)
    gate.set()
    await done(leaving)
    assert len(crew.publisher.woken) == count
    for _ in range(count):
        settled = (await worker.execute(await worker.claim_queued())).check()
        assert (settled.run.status, "rewind" in settled.order) == (RunStatus.COMPLETED, False)
        assert [call.state for call in settled.calls] == [CallState.FINISHED]
    assert len(runs) == len(set(runs)) == count
