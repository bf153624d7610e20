"""A function's run: one call through the ledger, its value the output, what it writes the answer's text."""

import asyncio
import json
import threading
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.contract.execution.crew import Crew, give_back_all, reached
from tests.contract.execution.worker import Settled, Worker
from tests.contract.fsck.inspecting import found
from tests.contract.store import states
from tests.fakes.databases import Fault

from runyard import Refused, RunContext, function
from runyard.authoring.cancellation import Cancellation
from runyard.authoring.functions import Function
from runyard.blocks import CANCELLED, INTERRUPTED
from runyard.db import boundaries, turns
from runyard.db.claims import Claim
from runyard.frames import FrameEvent
from runyard.lifecycle.cancelling import cancel_run
from runyard.runs import CallState, RunStatus
from runyard.terminal import failure_body
from runyard_workers import calls
from runyard_workers.functions.outcome import OUTPUT_LIMIT_BYTES
from runyard_workers.functions.output import TEXT_LIMIT_BYTES
from runyard_workers.threads import ToolThreads

pytestmark = pytest.mark.anyio

LONG_S = 3600.0


@pytest.fixture(autouse=True)
async def sound(worker: Worker) -> AsyncIterator[None]:
    """Whatever a test leaves, `runyard fsck` finds nothing in it."""
    yield
    assert await found(worker) == []


def offer(worker: Worker, offered: Function) -> dict[str, Any]:
    """What a turn has that calls it."""
    worker.functions = (offered,)
    return {"agent": f"fn:{offered.name}"}


async def call(worker: Worker, offered: Function, **arguments: Any) -> Settled:
    settled = await worker.run(**offer(worker, offered), content=json.dumps(arguments))
    return settled.check()


def ended(settled: Settled) -> dict[str, Any]:
    """The error of a run that failed, which its terminal frame tells as well."""
    assert settled.run.status is RunStatus.FAILED
    error = settled.invocation.error
    assert error is not None
    body = failure_body(result=settled.result, error=error, request_id=settled.invocation.request_id)
    assert settled.events("error") == [body]
    assert body["error"].items() >= error["fields"].items()
    return error


@function
async def count(ctx: RunContext, until: int, words: bool = False) -> dict[str, int]:
    for number in range(until):
        await ctx.stream.write(f"{number}\n")
        ctx.stream.event("counted", {"number": number})
    return {"until": until}


async def test_its_value_is_the_output_and_what_it_writes_the_text(worker: Worker) -> None:
    settled = await call(worker, count, until=2)
    call_id = settled.calls[0].call_id
    assert settled.contents == [
        '{"until": 2}',
        [{"type": "tool_use", "id": call_id, "name": "count", "input": {"until": 2}}],
        [{"type": "tool_result", "tool_use_id": call_id, "content": '{"output":{"until":2},"text":"0\\n1\\n"}'}],
        [{"type": "text", "text": "0\n1\n"}],
    ]
    assert settled.order == [
        *("status", "message", "message"),
        *("", "counted", "", "counted"),
        *("message", "message", "result"),
    ]
    assert settled.run.status is RunStatus.COMPLETED
    result = settled.result
    assert (result["output"], result["text"], result["finishReason"]) == ({"until": 2}, "0\n1\n", "end_turn")
    assert (result["steps"], result["model"], result["cost"]["amount"]) == (0, None, 0)
    assert (settled.rows[3].first_frame, settled.rows[3].last_frame) == (4, 8)
    assert [(item.state, item.name) for item in settled.calls] == [(CallState.FINISHED, "count")]


async def test_it_costs_a_transaction_more_than_its_call(worker: Worker) -> None:
    await call(worker, count, until=2)
    assert worker.database.written[:4] == ["append_turn", "start_calls", "append_results", "end_turn"]


@pytest.mark.parametrize("value", [None, 0, "", "5", 5, [1], "x" * 200_000], ids=lambda value: repr(value)[:9])
async def test_the_output_is_the_value_whole(worker: Worker, value: Any) -> None:
    @function
    def give() -> Any:
        return value

    settled = await call(worker, give)
    assert settled.result["output"] == value
    assert len(settled.rows) == 3, "it has written nothing"


async def test_its_context_says_who_calls(worker: Worker) -> None:
    @function(name="who-am-i")
    def who(ctx: RunContext) -> list[Any]:
        return [ctx.agent, ctx.user_id, ctx.tenant_id, ctx.idempotency_key, ctx.resources["library"]]

    settled = await call(worker, who)
    assert settled.result["output"] == ["fn:who-am-i", states.USER, states.TENANT, f"{settled.run.id}:2:0", "books"]


async def test_what_threads_write_is_all_there(worker: Worker) -> None:
    @function
    def write(ctx: RunContext) -> None:
        for number in range(100):
            ctx.stream.write(f"{number},")

    settled = await call(worker, write)
    assert settled.result["text"] == "".join(f"{number}," for number in range(100))


async def test_what_it_writes_after_its_end_is_nobodys(worker: Worker) -> None:
    """Its text is in the result that is on its way to the row."""
    contexts: list[RunContext] = []

    @function
    async def write(ctx: RunContext) -> None:
        contexts.append(ctx)
        ctx.stream.write("in time")

    async def write_on() -> None:
        contexts[0].stream.write("too late")

    worker.database.before[boundaries.append_results] = write_on
    settled = await call(worker, write)
    assert settled.result["text"] == "in time"
    assert (len(contexts), worker.database.before) == (1, {})


# Errors ------------------------------------------------------------------------------------------------------------


async def test_what_it_refuses_its_caller_is_told_as_it_is(worker: Worker) -> None:
    @function
    def refund(ctx: RunContext, order: str) -> None:
        ctx.stream.write("looking ...")
        raise Refused("ORDER_UNKNOWN", "There is no such order", status=404, order=order)

    settled = await call(worker, refund, order="A-17")
    assert ended(settled) == {
        "code": "ORDER_UNKNOWN",
        "message": "There is no such order",
        "retryable": False,
        "status": 404,
        "fields": {"order": "A-17"},
    }
    assert settled.run.error == settled.invocation.error
    assert (settled.result["text"], settled.result["finishReason"]) == ("", "error")
    assert settled.order[-2:] == ["rewind", "error"], "what it wrote is withdrawn"


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (KeyError("x"), "KeyError: 'x'"),
        (SystemExit(3), "SystemExit: 3"),
        (object(), "the function returned object, which has no JSON form"),
        ("x" * OUTPUT_LIMIT_BYTES, "the function returned 1,048,578 bytes of JSON, and 1,048,576 are allowed"),
    ],
    ids=["raised", "exited", "no JSON", "too large"],
)
async def test_what_it_did_not_mean_to_say_is_a_failure(worker: Worker, value: Any, message: str) -> None:
    @function
    async def fail() -> Any:
        if isinstance(value, BaseException):
            raise value
        return value

    error = ended(await call(worker, fail))
    assert (error["code"], error["message"], error["status"]) == ("FUNCTION_FAILED", message, 500)


async def test_arguments_that_do_not_fit_are_named(worker: Worker) -> None:
    settled = await call(worker, count, until="5", step=1)
    error = ended(settled)
    assert (error["code"], error["status"], error["fields"]) == ("INVALID_ARGS", 400, {"fields": ["step", "until"]})
    assert error["message"] == 'until: expected integer, got string; Unknown field "step"'


@pytest.mark.parametrize("is_async", [True, False])
async def test_one_that_takes_too_long_is_given_up(worker: Worker, is_async: bool) -> None:
    told = asyncio.Event()

    @function(timeout_s=0.05, name="wait")
    async def wait(ctx: RunContext) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            told.set()

    @function(timeout_s=0.05, name="wait")
    def block(ctx: RunContext) -> None:
        asyncio.run(ctx.cancelled.wait())
        worker_loop.call_soon_threadsafe(told.set)

    worker_loop = asyncio.get_running_loop()
    error = ended(await call(worker, wait if is_async else block))
    assert (error["code"], error["status"]) == ("RUN_TIMEOUT", 504)
    assert error["message"] == "the function timed out after 0.05 s"
    await reached(told)


async def test_what_is_too_much_to_write_is_refused(worker: Worker) -> None:
    @function
    def write(ctx: RunContext) -> None:
        for _ in range(3):
            ctx.stream.write("x" * (TEXT_LIMIT_BYTES // 2))

    error = ended(await call(worker, write))
    assert error["message"] == "ValueError: a function may write 1,048,576 bytes of text"


async def test_a_long_text_is_begun_anew_so_that_latecomers_get_all_of_it(worker: Worker) -> None:
    @function
    def write(ctx: RunContext) -> None:
        for _ in range(30):
            ctx.stream.write("0123456789")

    worker.store.max_bytes = 2_000
    settled = await worker.run(**offer(worker, write), content="{}")
    assert FrameEvent.REWIND in settled.order
    last = max(number for number, frame in enumerate(settled.frames) if frame.event == FrameEvent.REWIND)
    assert "".join(frame.data.decode() for frame in settled.frames[last:] if frame.event is None) == "0123456789" * 30


# Deaths, hand-overs, cancels ---------------------------------------------------------------------------------------


class Slow:
    """A function that says where it is and then waits. `runs`: the keys that it ran with."""

    def __init__(self, *, idempotent: bool = False) -> None:
        self.started = asyncio.Event()
        self.go_on = asyncio.Event()
        self.runs: list[str | None] = []

        @function(idempotent=idempotent)
        async def pay(ctx: RunContext) -> str:
            self.runs.append(ctx.idempotency_key)
            await ctx.stream.write("paying")
            self.started.set()
            await self.go_on.wait()
            await ctx.stream.write(", paid")
            return "paid"

        self.function = pay


async def begun(worker: Worker, slow: Slow) -> tuple[Claim, Crew]:
    claim = await worker.claim(**offer(worker, slow.function), content="{}")
    crew = Crew(worker=worker)
    crew.start(claim)
    await reached(slow.started)
    return claim, crew


async def test_one_that_had_started_is_not_run_again(worker: Worker) -> None:
    slow = Slow()
    claim, crew = await begun(worker, slow)
    seen = await worker.seen(claim)
    await give_back_all(crew.runner)
    settled = (await worker.execute(await worker.claim_queued())).check(seen=seen)
    error = ended(settled)
    assert (error["code"], error["message"], error["status"]) == ("RUN_CRASHED", INTERRUPTED, 500)
    assert len(slow.runs) == 1


async def test_one_that_is_idempotent_is_run_again_under_the_same_key(worker: Worker) -> None:
    slow = Slow(idempotent=True)
    claim, crew = await begun(worker, slow)
    seen = await worker.seen(claim)
    await give_back_all(crew.runner)
    slow.go_on.set()
    settled = (await worker.execute(await worker.claim_queued())).check(seen=seen)
    assert (settled.result["output"], settled.result["text"]) == ("paid", "paying, paid")
    assert slow.runs == [f"{settled.run.id}:2:0"] * 2


async def test_what_it_wrote_is_kept_when_its_worker_dies_behind_it(worker: Worker) -> None:
    """Between the call's result and the run's settlement."""
    slow = Slow()
    slow.go_on.set()
    at_end = asyncio.Event()

    async def stop_here() -> None:
        at_end.set()
        await asyncio.Event().wait()

    worker.database.before[boundaries.end_turn] = stop_here
    claim, crew = await begun(worker, slow)
    await reached(at_end)
    seen = await worker.seen(claim)
    await give_back_all(crew.runner)
    settled = (await worker.execute(await worker.claim_queued())).check(seen=seen)
    assert (settled.result["output"], settled.result["text"]) == ("paid", "paying, paid")
    assert len(slow.runs) == 1


@pytest.mark.parametrize("fault", [Fault.LOST_REQUEST, Fault.LOST_ANSWER])
@pytest.mark.parametrize("work", [turns.append_turn, turns.start_calls, boundaries.append_results, boundaries.end_turn])
async def test_a_commit_of_unknown_outcome_costs_nothing(worker: Worker, work: Any, fault: Fault) -> None:
    slow = Slow()
    slow.go_on.set()
    worker.database.faults[work] = [fault]
    settled = await call(worker, slow.function)
    assert worker.database.faults[work] == []
    assert (settled.result["output"], settled.result["text"], len(slow.runs)) == ("paid", "paying, paid", 1)


async def test_a_worker_that_leaves_waits_for_it_and_ends_it(worker: Worker) -> None:
    slow = Slow()
    claim, crew = await begun(worker, slow)
    leaving = asyncio.create_task(crew.runner.hand_over_all(LONG_S, asyncio.Event()))
    await asyncio.sleep(0)
    slow.go_on.set()
    await leaving
    settled = (await worker.settled(claim.run.id)).check()
    assert settled.run.status is RunStatus.COMPLETED
    assert (settled.result["text"], settled.run.generation) == ("paying, paid", claim.run.generation)


async def cancel(worker: Worker, claim: Claim, crew: Crew) -> Settled:
    await worker.database.write(cancel_run, claim.run.id, states.OWNER, at=states.AT + 50)
    crew.runner.look_at(claim.run.id)
    await crew.left()
    settled = (await worker.settled(claim.run.id)).check()
    assert (settled.run.status, settled.result["cancelled"]) == (RunStatus.CANCELLED, True)
    return settled


async def test_a_cancel_keeps_what_it_has_written(worker: Worker) -> None:
    started = asyncio.Event()

    @function
    async def watch(ctx: RunContext) -> str:
        ctx.stream.write("watching")
        started.set()
        await ctx.cancelled.wait()
        ctx.stream.write(", stopped")
        return "stopped"

    claim, crew = await worker.claim(**offer(worker, watch), content="{}"), Crew(worker=worker)
    crew.start(claim)
    await reached(started)
    settled = await cancel(worker, claim, crew)
    assert settled.result["text"] == "watching, stopped"
    assert settled.rows[-1].stop_reason == "cancelled"


async def test_one_that_does_not_hear_of_its_cancel_is_left_behind(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calls, "CANCEL_GRACE_S", 0.01)
    slow = Slow()
    settled = await cancel(worker, *await begun(worker, slow))
    assert settled.results[0]["content"] == INTERRUPTED
    assert settled.result["text"] == "paying"


async def test_one_that_waits_for_a_thread_as_it_is_cancelled_never_runs(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs, free, told, tell = [], threading.Event(), asyncio.Event(), Cancellation.set

    def noted_tell(self: Cancellation) -> None:
        tell(self)
        told.set()

    monkeypatch.setattr(Cancellation, "set", noted_tell)

    @function
    def pay() -> None:
        runs.append("pay")

    worker.threads = ToolThreads(1)
    busy = worker.threads.submit(free.wait)
    await busy.started
    claim, crew = await worker.claim(**offer(worker, pay), content="{}"), Crew(worker=worker)
    crew.start(claim)
    await worker.database.wrote(turns.start_calls)
    await worker.database.write(cancel_run, claim.run.id, states.OWNER, at=states.AT + 50)
    await crew.runner.cancel_if_asked(claim.run.id)
    await reached(told)
    free.set()
    await crew.left()
    settled = (await worker.settled(claim.run.id)).check()
    assert (settled.run.status, settled.results[0]["content"]) == (RunStatus.CANCELLED, CANCELLED)
    assert runs == []


async def test_one_that_is_cancelled_before_it_began_never_runs(worker: Worker) -> None:
    slow = Slow()
    claim = await worker.claim(**offer(worker, slow.function), content="{}")
    crew = Crew(worker=worker)

    async def cancelled_now() -> None:
        crew.runner._executions[(claim.run.id, claim.run.generation)].cancel()
        await worker.database.write(cancel_run, claim.run.id, states.OWNER, at=states.AT + 50)

    worker.database.before[turns.append_turn] = cancelled_now
    crew.start(claim)
    await crew.left()
    settled = (await worker.settled(claim.run.id)).check()
    assert (settled.run.status, slow.runs) == (RunStatus.CANCELLED, [])
    assert settled.results[0]["content"] == CANCELLED
