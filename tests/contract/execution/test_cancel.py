"""A run that a person stops: at once, wherever it stands, and what it has said is kept."""

import asyncio
import contextlib
import threading
from collections import Counter
from dataclasses import dataclass
from typing import Any

import pytest
from tests.contract.execution.crew import Crew, reached, stop
from tests.contract.execution.worker import GUARD_S, Settled, Worker
from tests.contract.store import states
from tests.contract.store.holder import Holder
from tests.fakes.databases import Fault
from tests.fakes.provider import MODEL, ScriptedProvider, asks, says
from tests.fakes.rows import text, tool_use
from tests.integration.processes import eventually

from runyard import RunContext, tool
from runyard.blocks import CANCELLED, INTERRUPTED
from runyard.db import boundaries, claims, turns
from runyard.db.claims import Claim, GivenBack
from runyard.db.deaths import bury
from runyard.db.workers import OwnRun, register
from runyard.errors import ProviderError
from runyard.lifecycle.accept import accept_turn
from runyard.lifecycle.cancelling import cancel_given_back
from runyard.runs import CallState, RunStatus
from runyard_workers import calls, output
from runyard_workers.flusher import Flusher
from runyard_workers.providers.model import ThinkingDelta, Usage, UsageSoFar
from runyard_workers.runner import Runner
from runyard_workers.threads import ToolThreads

pytestmark = pytest.mark.anyio

LONG_S = 3600.0
COUNTED = UsageSoFar(Usage(input_tokens=27, output_tokens=1), MODEL)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "CANCEL_GRACE_S", 0.01)


@dataclass
class Run:
    """A run on a crew. `cancel` tells the worker as the channel does."""

    worker: Worker
    crew: Crew
    claim: Claim

    async def cancel(self) -> None:
        await stop(self.worker, self.claim.run.id)
        self.crew.runner.look_at(self.claim.run.id)

    async def settled(self) -> Settled:
        await self.crew.left()
        return (await self.worker.settled(self.claim.run.id)).check()


async def buried(connection: Any, worker: Worker) -> list[GivenBack]:
    """The worker is buried, and another one in its place."""
    given_back: list[GivenBack] | None = await connection.run_sync(bury, worker.worker_id, 0)
    assert given_back is not None
    registration = states.registration_of()
    await connection.run_sync(register, registration)
    worker.worker_id = registration.worker_id
    return given_back


async def start(worker: Worker, **turn: Any) -> Run:
    crew, claim = Crew(worker=worker), await worker.claim(**turn)
    crew.start(claim)
    return Run(worker, crew, claim)


async def steer(worker: Worker, claim: Claim, content: Any = "one more thing") -> None:
    await worker.database.write(accept_turn, states.new_turn(continues=claim.run.id, content=content))


def cancelled(settled: Settled) -> dict[str, Any]:
    """The result, which is that of a cancelled invocation, here and in the terminal frame."""
    assert (settled.run.status, settled.run.cancel_requested) == (RunStatus.CANCELLED, False)
    assert settled.run.worker_id is None
    assert settled.events("result") == [settled.result]
    assert (settled.result["cancelled"], settled.result["finishReason"]) == (True, "cancelled")
    return settled.result


# The model's call --------------------------------------------------------------------------------------------------


async def test_a_model_call_is_aborted_and_its_text_kept(worker: Worker) -> None:
    begun = asyncio.Event()
    worker.script([COUNTED, *says("It is ", "so")[:2], begun.set, asyncio.Event(), *says("and never this")])
    run = await start(worker)
    await reached(begun)
    seen = await worker.seen(run.claim)
    await run.cancel()
    settled = await run.settled()
    assert worker.provider.open_streams == 0
    assert settled.check(seen=seen).contents[1:] == [[text("It is so")]]
    assert cancelled(settled)["text"] == "It is so"
    assert settled.order == ["status", "message", "", "", "message", "result"]
    (answer,) = settled.rows[1:]
    assert (answer.stop_reason, answer.model) == ("cancelled", MODEL)
    spent = Usage(input_tokens=27, output_tokens=3, output_tokens_estimated=2).to_dict()
    assert answer.usage == settled.result["usage"] == settled.run.usage == settled.invocation.usage == spent
    assert settled.result["cost"]["amount"] > 0


async def test_steering_that_waits_is_kept_behind_the_text(worker: Worker) -> None:
    """User, assistant, user."""
    begun = asyncio.Event()
    worker.script([*says("Half")[:1], begun.set, asyncio.Event()])
    run = await start(worker, content="go")
    await reached(begun)
    await steer(worker, run.claim)
    await run.cancel()
    settled = await run.settled()
    assert settled.contents == ["go", [text("Half")], "one more thing"]
    assert cancelled(settled)["text"] == "Half"
    assert len(worker.provider.requests) == 1


@pytest.mark.parametrize("shown", [[], [COUNTED], [COUNTED, ThinkingDelta("Hm. " * 10)]], ids=["", "head", "thinking"])
async def test_a_call_that_has_said_nothing_leaves_nothing(worker: Worker, shown: list[Any]) -> None:
    begun = asyncio.Event()
    worker.script([*shown, begun.set, asyncio.Event()])
    run = await start(worker)
    await reached(begun)
    await run.cancel()
    settled = await run.settled()
    assert len(settled.rows) == 1
    assert cancelled(settled)["text"] == ""
    assert settled.result["usage"]["output_tokens"] == [0, 1, 11][len(shown)], "thinking is paid for"


async def test_a_provider_that_breaks_as_it_is_closed_changes_nothing(worker: Worker) -> None:
    class Breaks(ScriptedProvider):
        async def stream(self, request: Any) -> Any:
            try:
                async with contextlib.aclosing(super().stream(request)) as events:
                    async for event in events:
                        yield event
            except asyncio.CancelledError:
                raise ProviderError("the connection broke") from None

    begun = asyncio.Event()
    worker.script()
    worker.provider = Breaks(scripts=[[*says("Half")[:1], begun.set, asyncio.Event()]])
    run = await start(worker)
    await reached(begun)
    await run.cancel()
    assert cancelled(await run.settled())["text"] == "Half"


@pytest.mark.parametrize("is_async", [True, False])
async def test_a_system_prompt_that_takes_its_time_is_left_behind(
    worker: Worker, block: threading.Event, is_async: bool
) -> None:
    asked, told = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    async def awaits(_ctx: RunContext) -> str:
        asked.set()
        await asyncio.Event().wait()
        return ""

    def blocks(ctx: RunContext) -> str:
        loop.call_soon_threadsafe(asked.set)
        block.wait()
        if ctx.cancelled.is_set():
            told.set()
        return ""

    worker.script(says("Never."), system=awaits if is_async else blocks)
    run = await start(worker)
    await reached(asked)
    await run.cancel()
    settled = await run.settled()
    assert worker.provider.requests == []
    assert (cancelled(settled)["steps"], settled.order) == (0, ["status", "message", "result"])
    block.set()
    assert is_async or told.wait(GUARD_S)


async def test_text_that_redis_has_lost_is_told_anew(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "FLUSH_BEFORE_COMMIT_S", 0.01)
    begun = asyncio.Event()
    worker.script([*says("It is ", "so")[:2], begun.set, asyncio.Event()])
    run = await start(worker)
    await reached(begun)
    seen = await worker.seen(run.claim)
    keys = worker.store.keys
    stream_id = run.claim.invocation.stream_id
    await worker.store._client.delete(keys.frames(stream_id), keys.meta(stream_id))
    await run.cancel()
    settled = (await run.settled()).check(seen=seen)
    assert settled.order == ["rewind", "", "message", "result"]
    assert cancelled(settled)["text"] == "It is so"


async def test_a_redis_that_has_been_away_for_long_is_not_waited_for(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output, "FLUSH_BEFORE_COMMIT_S", LONG_S)
    monkeypatch.setattr(Flusher, "away_s", LONG_S)
    begun = asyncio.Event()
    worker.script([*says("It is ", "so")[:2], begun.set, asyncio.Event()])
    run = await start(worker)
    await reached(begun)
    worker.store.away = True
    await run.cancel()
    await run.crew.left()
    worker.store.away = False
    settled = await run.settled()
    assert cancelled(settled)["text"] == "It is so"
    assert settled.order == ["status", "message", "", "", "message", "result"]


# Tools -------------------------------------------------------------------------------------------------------------


async def test_tools_are_told_and_what_has_not_started_does_not(worker: Worker) -> None:
    begun, ran = asyncio.Event(), []

    @tool
    async def patient(ctx: RunContext) -> str:
        begun.set()
        await ctx.cancelled.wait()
        return "stopped early"

    @tool(exclusive=True)
    async def alone() -> None:
        ran.append("alone")

    names = ["patient", "alone", "alone"]
    worker.script(
        asks(*(tool_use(f"toolu_{at}", name) for at, name in enumerate(names)), saying="Let me check."),
        tools=[patient, alone],
    )
    run = await start(worker)
    await reached(begun)
    await run.cancel()
    settled = await run.settled()
    assert [(result["content"], result.get("is_error", False)) for result in settled.results] == [
        ("stopped early", False),
        (CANCELLED, True),
        (CANCELLED, True),
    ]
    assert cancelled(settled)["text"] == "Let me check."
    assert (ran, len(worker.provider.requests)) == ([], 1)
    assert [call.state for call in settled.calls] == [CallState.FINISHED] * 3
    assert [call.started_at is None for call in settled.calls] == [False, True, True]
    assert [event["isError"] for event in settled.events("tool")] == [False, True, True]
    assert [event["id"] for event in settled.events("tool_start")] == ["toolu_0"]


@pytest.mark.usefixtures("impatient")
async def test_a_tool_that_ignores_it_is_left_behind(worker: Worker, block: threading.Event) -> None:
    """What was done by its siblings counts."""
    begun, quick_done = asyncio.Event(), asyncio.Event()
    stubborn_begun = asyncio.Event()
    loop = asyncio.get_running_loop()

    @tool
    async def stubborn() -> str:
        stubborn_begun.set()
        while not block.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.Event().wait()
                block.set()
        return "too late"

    @tool
    def stuck() -> str:
        loop.call_soon_threadsafe(begun.set)
        block.wait(GUARD_S)
        return "too late"

    @tool
    async def quick() -> str:
        quick_done.set()
        return "in time"

    worker.script(
        asks(*(tool_use(f"toolu_{at}", name) for at, name in enumerate(["stuck", "quick", "stubborn"]))),
        tools=[stubborn, stuck, quick],
    )
    run = await start(worker)
    for event in (begun, quick_done, stubborn_begun):
        await reached(event)
    await run.cancel()
    settled = await run.settled()
    block.set()
    assert [result["content"] for result in settled.results] == [INTERRUPTED, "in time", INTERRUPTED]
    cancelled(settled)
    assert [call.state for call in settled.calls] == [CallState.FINISHED] * 3


@pytest.mark.parametrize("hears", [True, False], ids=["heard", "ignored"])
async def test_what_waits_for_a_thread_does_not_start(
    worker: Worker, block: threading.Event, monkeypatch: pytest.MonkeyPatch, hears: bool
) -> None:
    """Its call is in the ledger as started, but nobody has called it: it cannot have acted."""
    if not hears:
        monkeypatch.setattr(calls, "CANCEL_GRACE_S", 0.01)
    begun, ran, loop = asyncio.Event(), [], asyncio.get_running_loop()

    @tool
    def work(ctx: RunContext, step: int) -> str:
        ran.append(step)
        loop.call_soon_threadsafe(begun.set)
        while not (hears and ctx.cancelled.is_set()) and not block.wait(0.01):
            pass
        return "stopped early"

    worker.threads = ToolThreads(1)
    worker.script(asks(*(tool_use(f"toolu_{step}", "work", step=step) for step in range(3))), tools=[work])
    run = await start(worker)
    await reached(begun)
    await run.cancel()
    settled = await run.settled()
    block.set()
    first = "stopped early" if hears else INTERRUPTED
    assert [result["content"] for result in settled.results] == [first, CANCELLED, CANCELLED]
    cancelled(settled)
    assert await worker.threads.submit(lambda: "free").outcome == ("free", None)  # what was queued has had its turn
    assert ran == [0]


async def test_a_tool_that_returns_while_another_ones_result_is_stored_is_not_left_behind(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time is over before the batch looks at it again."""
    monkeypatch.setattr(calls, "CANCEL_GRACE_S", 0)
    begun = asyncio.Event()

    @tool
    async def quick() -> str:
        return "at once"

    @tool
    async def patient(ctx: RunContext) -> str:
        begun.set()
        await ctx.cancelled.wait()
        return "in time"

    worker.script(asks(tool_use("toolu_1", "quick"), tool_use("toolu_2", "patient")), tools=[quick, patient])
    run = Run(worker, Crew(worker=worker), await worker.claim())

    async def store_slowly() -> None:
        await reached(begun)
        await run.cancel()
        await eventually(lambda: "toolu_2" not in {task.get_name() for task in asyncio.all_tasks()}, "tool's end")

    worker.database.before[turns.finish_call] = store_slowly
    run.crew.start(run.claim)
    settled = await run.settled()
    assert [result["content"] for result in settled.results] == ["at once", "in time"]
    cancelled(settled)


async def test_the_next_turn_rides_behind_the_results(worker: Worker) -> None:
    """One user message, results first, and nothing has run twice."""
    begun, runs = asyncio.Event(), []

    @tool
    async def work(ctx: RunContext, step: str) -> str:
        runs.append(step)
        if step == "two":
            begun.set()
            await ctx.cancelled.wait()
            raise RuntimeError("cut off")
        return f"done {step}"

    @tool(exclusive=True)
    async def last() -> None:
        runs.append("last")

    asked = asks(tool_use("a", "work", step="one"), tool_use("b", "work", step="two"), tool_use("c", "last"))
    worker.script(asked, says("Back again."), tools=[work, last])
    run = await start(worker, content="go")
    await worker.database.wrote(turns.finish_call)
    await reached(begun)
    await run.cancel()
    cancelled(await run.settled())

    settled = (await worker.run(continues=run.claim.run.id, content="and now?")).check()
    assert (settled.run.status, settled.result["text"]) == (RunStatus.COMPLETED, "Back again.")
    last_message = worker.provider.requests[-1].messages[-1]
    assert [block["type"] for block in last_message["content"]] == ["tool_result"] * 3 + ["text"]
    assert [block["content"] for block in settled.results] == ["done one", "RuntimeError: cut off", CANCELLED]
    assert runs == ["one", "two"]


# At a boundary, where nobody has told the worker -------------------------------------------------------------------


async def test_calls_that_are_only_planned_do_not_start(worker: Worker) -> None:
    ran = []

    @tool
    async def work() -> None:
        ran.append("work")

    worker.script(asks(tool_use("a", "work"), saying="Let me check."), tools=[work])
    run = await start(worker)

    async def cancel() -> None:
        await run.cancel()
        await asyncio.gather(*run.crew.runner._background)

    worker.database.before[turns.append_turn] = cancel
    settled = await run.settled()
    assert ([result["content"] for result in settled.results], ran) == ([CANCELLED], [])
    cancelled(settled)


async def test_a_cancel_at_the_tool_boundary_calls_the_model_no_more(worker: Worker) -> None:

    @tool
    async def work() -> str:
        return "done"

    worker.script(asks(tool_use("a", "work")), says("Never said."), tools=[work])
    claim = await worker.claim()
    worker.database.before[boundaries.append_results] = lambda: stop(worker, claim.run.id)
    settled = (await worker.execute(claim)).check()
    assert [row.role for row in settled.rows] == ["user", "assistant", "user"]
    assert settled.results[0]["content"] == "done"
    cancelled(settled)
    assert len(worker.provider.requests) == 1


async def test_a_cancel_that_comes_as_the_run_is_to_make_way_ends_it_here(worker: Worker) -> None:
    """Handed over it would wait for its turn, to be stopped."""

    @tool
    async def work() -> str:
        return "done"

    worker.script(asks(tool_use("a", "work")), says("Never said."), tools=[work])
    run = Run(worker, Crew(worker=worker), await worker.claim())

    async def must_yield(_tenant_id: str, _held: Counter[str]) -> bool:
        await run.cancel()
        await asyncio.gather(*run.crew.runner._background)
        return True

    run.crew.runner = Runner(worker.services, run.crew.slots, run.crew.publisher, must_yield=must_yield)
    run.crew.start(run.claim)
    cancelled(await run.settled())
    assert len(worker.provider.requests) == 1


async def test_a_cancel_at_the_terminal_boundary_keeps_the_answer(worker: Worker) -> None:
    """With steering, in both orders."""
    worker.script(says("Done."))
    claim = await worker.claim(content="go")

    async def both() -> None:
        await steer(worker, claim)
        await stop(worker, claim.run.id)

    worker.database.before[boundaries.end_turn] = both
    settled = (await worker.execute(claim)).check()
    assert settled.contents == ["go", [text("Done.")], "one more thing"]
    assert cancelled(settled)["text"] == "Done."


async def test_a_run_that_fails_while_it_is_cancelled_is_cancelled(worker: Worker) -> None:
    worker.script([*says("Half")[:1], ProviderError("the provider answered 400: no", status=400)])
    claim = await worker.claim()

    async def both() -> None:
        await steer(worker, claim)
        await stop(worker, claim.run.id)

    worker.database.before[boundaries.fail_turn] = both
    settled = (await worker.execute(claim)).check()
    assert settled.contents[1:] == ["one more thing"]
    cancelled(settled)


@pytest.mark.parametrize(
    "faults",
    [[Fault.AWAY], [Fault.LOST_REQUEST], [Fault.LOST_ANSWER], [Fault.LOST_REQUEST, Fault.AWAY, Fault.LOST_ANSWER]],
    ids="+".join,
)
async def test_a_cancel_whose_commit_fails_is_settled_once(worker: Worker, faults: list[Fault]) -> None:
    begun = asyncio.Event()
    worker.script([*says("Half")[:1], begun.set, asyncio.Event()])
    run = await start(worker, content="go")
    await reached(begun)
    seen = await worker.seen(run.claim)
    await steer(worker, run.claim)
    worker.database.faults[boundaries.end_turn] = list(faults)
    await run.cancel()
    settled = (await run.settled()).check(seen=seen)
    cancelled(settled)
    kept = [] if Fault.LOST_REQUEST in faults else [[text("Half")]]
    assert settled.contents == ["go", *kept, "one more thing"], "memory is thrown away when its commit is in doubt"
    assert len(worker.provider.requests) == 1


# Who tells the worker ----------------------------------------------------------------------------------------------


async def test_the_beat_tells_what_the_channel_did_not(worker: Worker) -> None:
    """The publish was lost, or Redis is away."""
    begun = asyncio.Event()
    worker.script([*says("Half")[:1], begun.set, asyncio.Event()])
    run = await start(worker)
    await reached(begun)
    row = await states.run_row(worker.database, run.claim.run.id)
    assert not row.cancel_requested
    await stop(worker, run.claim.run.id)
    mine = OwnRun(id=run.claim.run.id, generation=run.claim.run.generation, cancel_requested=True)
    for _ in range(2):
        run.crew.runner.compare([mine])
    assert cancelled(await run.settled())["text"] == "Half"


async def test_what_the_channel_says_is_only_a_reason_to_look(worker: Worker) -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()
    worker.script([*says("One ")[:1], begun.set, go_on, *says("One ", "two.")[1:]])
    run = await start(worker)
    await reached(begun)
    run.crew.runner.look_at(run.claim.run.id)
    run.crew.runner.look_at(states.new_run_id())
    await asyncio.gather(*run.crew.runner._background)
    go_on.set()
    assert (await run.settled()).run.status is RunStatus.COMPLETED


async def test_a_look_that_fails_leaves_it_to_the_beat(worker: Worker) -> None:
    begun = asyncio.Event()
    worker.script([*says("Half")[:1], begun.set, asyncio.Event()])
    run = await start(worker)
    await reached(begun)
    worker.database.faults[claims.is_cancel_requested] = [Fault.AWAY]
    await run.cancel()
    await asyncio.gather(*run.crew.runner._background)
    assert worker.provider.open_streams == 1
    run.crew.runner.compare([OwnRun(id=run.claim.run.id, generation=1, cancel_requested=True)])
    cancelled(await run.settled())


async def test_a_flag_of_another_generation_is_not_this_ones(worker: Worker) -> None:
    """What was asked of a turn before, or of another worker's hold, cancels nothing now."""
    begun, go_on = asyncio.Event(), asyncio.Event()
    worker.script(says("First."), [begun.set, go_on, *says("Second.")])
    first = await worker.run()
    run = await start(worker, continues=first.run.id)
    await reached(begun)
    stale = OwnRun(id=first.run.id, generation=first.run.generation, cancel_requested=True)
    now = OwnRun(id=first.run.id, generation=run.claim.run.generation, cancel_requested=False)
    run.crew.runner.compare([stale, now])
    run.crew.runner.look_at(first.run.id)
    await asyncio.gather(*run.crew.runner._background)
    go_on.set()
    assert (await run.settled()).run.status is RunStatus.COMPLETED


# Runs that change hands --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("idempotent", [False, True], ids=["once", "idempotent"])
async def test_whoever_takes_a_run_that_is_to_stop_stops_it(worker: Worker, idempotent: bool) -> None:
    """The worker is dead, the cancel came before anybody knew."""
    ran = []

    @tool
    async def lookup() -> None:
        ran.append("lookup")

    worker.script(says("Never said."), tools=[lookup])
    claim = await worker.claim()
    holder = await Holder.of(worker.database, claim)
    await holder.asks("a", "b", "c", idempotent=idempotent)
    await holder.starts("a", "b")
    await holder.finishes("a")
    await steer(worker, claim)
    await stop(worker, claim.run.id)
    await worker.database.write(claims.give_back, claim.run.id, claim.run.generation)
    settled = (await worker.execute(await worker.claim_queued())).check()
    assert [result["content"] for result in settled.results] == ["of a", INTERRUPTED, CANCELLED]
    assert settled.contents[-1][-1] == text("one more thing")
    cancelled(settled)
    assert (ran, worker.provider.requests) == ([], [])


async def test_a_run_that_crashes_its_workers_and_is_to_stop_is_cancelled(worker: Worker) -> None:
    worker.script(says("Never said."))
    claim = await worker.claim()
    await stop(worker, claim.run.id)
    object.__setattr__(claim.invocation, "deaths", [[]] * 10)
    cancelled((await worker.execute(claim)).check())


# Another call in its place -----------------------------------------------------------------------------------------


async def replaced(worker: Worker, run: Run) -> Any:
    turn = states.new_turn(continues=run.claim.run.id, content="instead", if_busy="cancel")
    accepted = await worker.database.write(accept_turn, turn)
    run.crew.runner.look_at(run.claim.run.id)
    return accepted


@pytest.mark.parametrize("fault", [None, Fault.LOST_ANSWER], ids=["", "in doubt"])
async def test_the_next_call_is_woken_for_when_the_first_has_ended(worker: Worker, fault: Fault | None) -> None:
    begun = asyncio.Event()
    worker.script([*says("Half")[:1], begun.set, asyncio.Event()], says("Here."))
    run = await start(worker, content="go")
    await reached(begun)
    if fault is not None:
        worker.database.faults[boundaries.end_turn] = [fault]
    following = await replaced(worker, run)
    await run.crew.left()
    assert run.crew.publisher.woken == [(run.claim.run.id, following.invocation_id, "default")]
    old = await worker.database.read(turns.load_invocation, run.claim.invocation.id)
    assert (old.status, old.result and old.result["text"]) == (RunStatus.CANCELLED, "Half")

    settled = (await worker.execute(await worker.claim_queued())).check()
    assert settled.contents == ["go", [text("Half")], "instead", [text("Here.")]]
    assert (settled.run.status, settled.invocation.id) == (RunStatus.COMPLETED, following.invocation_id)


async def test_a_call_that_ends_just_then_is_completed_by_nobody_else(worker: Worker) -> None:
    """The terminal boundary meets the replacement: the answer is whole, and cancelled, and the next call is queued."""
    worker.script(says("Done."), says("Here."))
    claim = await worker.claim(content="go")
    following: list[Any] = []

    async def replace() -> None:
        turn = states.new_turn(continues=claim.run.id, content="instead", if_busy="cancel")
        following.append(await worker.database.write(accept_turn, turn))

    worker.database.before[boundaries.end_turn] = replace
    execution = worker.execution(claim)
    async with asyncio.timeout(GUARD_S):
        await execution.run()
    assert execution.replacement is not None
    assert execution.replacement.invocation_id == following[0].invocation_id
    settled = (await worker.execute(await worker.claim_queued())).check()
    assert settled.contents == ["go", [text("Done.")], "instead", [text("Here.")]]


# Its worker died ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("instead", ["", "instead"], ids=["for good", "for another call"])
@pytest.mark.parametrize("faults", [[], [Fault.AWAY]], ids=["", "away"])
async def test_a_run_whose_worker_died_as_it_was_to_stop_waits_for_no_turn(
    worker: Worker, instead: str, faults: list[Fault]
) -> None:
    """Whoever buries the worker ends it, without a slot; where the database is away again, the next claim does."""
    begun = asyncio.Event()

    @tool(exclusive=True)
    async def pay(order: str) -> str:
        begun.set()
        return await asyncio.Event().wait() and order

    asked = [tool_use("toolu_1", "pay", order="a"), tool_use("toolu_2", "pay", order="b")]
    worker.script(asks(*asked, saying="Let me pay. "), says("Instead."), tools=[pay])
    run = await start(worker)
    await reached(begun)
    seen = await worker.seen(run.claim)
    await stop(worker, run.claim.run.id, instead=instead)
    run.crew.runner.drop_all()
    await run.crew.left()
    given_back = await worker.database.write(buried, worker)
    worker.database.faults[cancel_given_back] = faults[:]
    survivor = Crew(worker=worker)
    survivor.runner.pass_on(given_back)
    await asyncio.gather(*survivor.runner._background)
    settled = await survivor.stopped(run.claim.run.id, instead=instead, away=bool(faults), seen=seen)
    if not instead:
        assert (settled.result["text"], settled.invocation.deaths) == ("Let me pay. ", [["pay"]])
    assert [result["content"] for result in settled.results] == [INTERRUPTED, CANCELLED]
    assert {call.state for call in settled.calls} == {CallState.FINISHED}
