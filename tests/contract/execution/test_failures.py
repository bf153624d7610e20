"""Runs that fail: the provider, the system function, silence, our own code."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import sqlalchemy as sa
from tests.contract.execution.crew import Crew
from tests.contract.execution.worker import Settled, Worker, look
from tests.fakes.provider import MODEL, asks, says
from tests.fakes.rows import text, tool_use

from runyard import RunContext, tool
from runyard.db.boundaries import append_results
from runyard.db.tables import agent_calls
from runyard.db.turns import start_calls
from runyard.errors import ModelNotConfigured, ProviderError, ProviderUnavailable
from runyard.lifecycle.endings import stored_ending
from runyard.runs import RunStatus
from runyard_workers.prices import cost
from runyard_workers.providers.model import Activity, TextDelta, Usage, UsageSoFar

pytestmark = pytest.mark.anyio

OVERLOADED = ProviderUnavailable("the provider failed in the middle of its answer: Overloaded", status=200)


@tool
async def lookup(q: str) -> str:
    return f"about {q}"


async def failed(worker: Worker, **turn: Any) -> Settled:
    settled = (await worker.run(**turn)).check()
    assert settled.run.status is settled.invocation.status is RunStatus.FAILED
    assert settled.run.error == settled.invocation.error
    assert settled.result["finishReason"] in ("error", "max_steps")
    assert settled.order[-1] == "error"
    assert worker.provider.open_streams == 0
    return settled


async def test_a_refusing_provider_fails_the_run(worker: Worker) -> None:
    worker.script([ProviderError("the provider answered 400: no such thing", status=400)])
    settled = await failed(worker, content="hi")
    assert settled.run.error == {
        "code": "PROVIDER_ERROR",
        "message": "the provider answered 400: no such thing",
        "retryable": False,
    }
    assert settled.contents == ["hi"]
    (body,) = settled.events("error")
    assert body["error"].items() >= settled.run.error.items()
    assert body["error"]["requestId"] == settled.invocation.request_id
    assert (settled.result["text"], settled.result["model"], settled.result["steps"]) == ("", None, 0)


async def test_text_of_a_broken_answer_is_withdrawn(worker: Worker) -> None:
    worker.script([TextDelta("Half an "), TextDelta("answ"), OVERLOADED])
    settled = await failed(worker, content="hi")
    assert settled.run.error is not None
    assert settled.run.error["retryable"]
    again = ["", "", "rewind", "status"]
    assert settled.order == ["status", "message", *again * 3, "", "", "rewind", "error"]
    assert settled.events("rewind") == [{"toSeq": 0, "length": 0}] * 4
    assert settled.contents == ["hi"]


async def test_the_text_of_earlier_steps_stays(worker: Worker) -> None:
    call = tool_use("toolu_1", "lookup", q="x")
    worker.script(asks(call, saying="Let me check."), [TextDelta("It sa"), OVERLOADED], tools=[lookup])
    settled = await failed(worker)
    assert settled.events("rewind") == [{"toSeq": settled.rows[1].last_frame, "length": len("Let me check.")}] * 4
    assert settled.result["text"] == "Let me check."
    assert settled.result["steps"] == settled.run.steps == 1


async def test_after_a_failure_the_run_goes_on_in_one_user_turn(worker: Worker) -> None:
    worker.script([OVERLOADED])
    run = (await failed(worker, content="hi")).run
    worker.script(says("Better now."))
    settled = (await worker.run(content="again", continues=run.id)).check()
    assert worker.provider.requests[0].messages == [{"role": "user", "content": [text("hi"), text("again")]}]
    assert (settled.run.status, settled.run.error) == (RunStatus.COMPLETED, None)


@pytest.mark.parametrize(
    ("error", "attempts"), [(OVERLOADED, 4), (KeyError("a fault of ours"), 1)], ids=["provider", "ours"]
)
async def test_what_a_broken_answer_has_cost_is_counted(worker: Worker, error: Exception, attempts: int) -> None:
    spent = UsageSoFar(Usage(input_tokens=27, cache_read_input_tokens=100, output_tokens=3), MODEL)
    worker.script([UsageSoFar(Usage(input_tokens=27), MODEL), TextDelta("Half"), spent, error])
    settled = await failed(worker)
    paid = sum([spent.usage] * attempts, Usage())
    assert settled.run.usage == settled.result["usage"] == paid.to_dict()
    assert settled.run.cost == cost(MODEL, paid).to_dict()
    assert settled.run.steps == 0


async def test_a_model_that_is_not_configured_fails_the_run_and_names_the_setting(worker: Worker) -> None:
    worker.script([ModelNotConfigured("ANTHROPIC_API_KEY is not set")])
    settled = await failed(worker)
    assert settled.run.error is not None
    assert settled.run.error["code"] == "MODEL_NOT_CONFIGURED"


async def test_a_silent_model_fails_the_run(worker: Worker) -> None:
    worker.script([TextDelta("Well, "), asyncio.Event()], timeout_s=0.05)
    settled = await failed(worker)
    assert settled.run.error is not None
    assert settled.run.error["code"] == "RUN_TIMEOUT"


async def test_a_connection_that_is_only_kept_open_is_silence(worker: Worker) -> None:
    class Pings(list[Any]):
        def __iter__(self) -> Any:
            while True:
                tick = asyncio.Event()
                asyncio.get_running_loop().call_later(0.001, tick.set)
                yield tick
                yield Activity(ping=True)

    worker.script(Pings(), timeout_s=0.05)
    settled = await failed(worker)
    assert settled.run.error is not None
    assert settled.run.error["code"] == "RUN_TIMEOUT"


async def test_an_error_of_our_own_ends_the_run_and_tells_no_details(worker: Worker) -> None:
    worker.script([TextDelta("Half"), KeyError("the database's password")])
    settled = await failed(worker)
    assert settled.run.error == {"code": "INTERNAL", "message": "Internal error (KeyError)", "retryable": False}
    assert b"password" not in b"".join(frame.data for frame in settled.frames)


async def test_a_provider_that_ends_without_a_turn_is_an_error(worker: Worker) -> None:
    worker.script([TextDelta("Half")])
    settled = await failed(worker)
    assert settled.run.error is not None
    assert settled.run.error["code"] == "INTERNAL"


async def test_a_run_whose_rows_make_no_sense_ends_all_the_same(worker: Worker) -> None:
    async def lose_the_ledger() -> None:
        await worker.database.write(delete_calls)

    async def delete_calls(connection: Any) -> None:
        await connection.execute(sa.delete(agent_calls).where(agent_calls.c.index == 1))

    async def fail_once() -> None:
        await lose_the_ledger()
        raise RuntimeError("unforeseen")

    calls = [tool_use("toolu_1", "lookup", q="x"), tool_use("toolu_2", "lookup", q="y")]
    worker.script(asks(*calls), says("Well."), tools=[lookup])
    worker.database.before[start_calls] = fail_once
    settled = await worker.run()
    assert (settled.run.status, settled.run.worker_id) == (RunStatus.FAILED, None)
    assert settled.order[-1] == "error"
    assert settled.results == []
    again = await worker.run(content="go on", continues=settled.run.id)
    assert again.run.status is RunStatus.COMPLETED
    assert len(worker.provider.requests[-1].messages[-1]["content"]) == 3


async def test_a_run_that_cannot_even_be_settled_ends_and_pays_once(worker: Worker) -> None:
    """Given back, it would call its model again and again, and never end. Its readers keep what is in the rows."""
    held = asyncio.Event()
    unwritable = ProviderError("unforeseen", status=400, errors=[object()])
    worker.script(
        asks(tool_use("toolu_1", "lookup", q="x"), saying="Let me see."),
        [TextDelta("Half"), held, unwritable],
        tools=[lookup],
    )
    claim, crew = await worker.claim(), Crew(worker=worker)
    crew.start(claim)
    await worker.database.wrote(append_results)
    seen = await worker.seen(claim)
    held.set()
    await crew.left()
    assert crew.publisher.woken == []
    assert len(worker.provider.requests) == 2

    ended = await look(worker.database, worker.store, claim.run.id)
    worker.closer.close(stored_ending(ended.invocation, ended.rows))
    settled = (await worker.settled(claim.run.id)).check(seen=seen)
    assert (settled.run.status, settled.run.worker_id) == (RunStatus.FAILED, None)
    assert settled.run.error == settled.invocation.error
    assert settled.run.error is not None
    assert settled.run.error["code"] == "INTERNAL"
    assert [settled.order[0], *settled.order[-2:]] == ["rewind", "", "error"]


async def test_the_system_prompt_is_asked_for_before_every_call(worker: Worker) -> None:
    asked: list[RunContext] = []

    def system(ctx: RunContext) -> str:
        asked.append(ctx)
        return f"Step {len(asked)}.\x00"

    worker.script(asks(tool_use("toolu_1", "lookup", q="x")), says("Done."), tools=[lookup], system=system)
    settled = (await worker.run()).check()
    assert [request.system for request in worker.provider.requests] == ["Step 1.\ufffd", "Step 2.\ufffd"]
    assert [(ctx.run_id, ctx.call_id) for ctx in asked] == [(settled.run.id, None)] * 2


async def in_async(ctx: RunContext) -> str:
    await asyncio.sleep(0)
    return ctx.user_id


def by_awaitable(ctx: RunContext) -> Awaitable[str]:
    return in_async(ctx)


class Instance:
    async def __call__(self, ctx: RunContext) -> str:
        return ctx.user_id


@pytest.mark.parametrize("system", [in_async, by_awaitable, Instance()], ids=["async", "awaitable", "instance"])
async def test_the_system_prompts_function_may_be_asynchronous(worker: Worker, system: Callable[..., Any]) -> None:
    worker.script(says("Hi."), system=system)
    (await worker.run()).check()
    assert worker.provider.requests[0].system == "ada"


@pytest.mark.parametrize("system", ["", " \n", None, lambda _ctx: ""], ids=["empty", "blank", "none", "function"])
async def test_an_empty_system_prompt_is_none(worker: Worker, system: Any) -> None:
    worker.script(says("Hi."), system=system)
    await worker.run()
    assert worker.provider.requests[0].system is None


def raising(error: BaseException, *, is_async: bool) -> Callable[[RunContext], Any]:
    def in_a_thread(_ctx: RunContext) -> str:
        raise error

    async def on_the_loop(_ctx: RunContext) -> str:
        raise error

    return on_the_loop if is_async else in_a_thread


@pytest.mark.parametrize("is_async", [True, False])
@pytest.mark.parametrize("error", [ValueError("secret"), SystemExit(1), asyncio.CancelledError()], ids=repr)
async def test_a_system_function_that_raises_fails_the_run(
    worker: Worker, error: BaseException, is_async: bool
) -> None:
    worker.script(says("Hi."), system=raising(error, is_async=is_async))
    settled = await failed(worker)
    assert settled.run.error == {
        "code": "INTERNAL",
        "message": f"the agent's system function failed ({type(error).__name__})",
        "retryable": False,
    }
    assert worker.provider.requests == []


async def test_a_system_function_that_gives_no_text_fails_the_run(worker: Worker) -> None:
    worker.script(says("Hi."), system=lambda _ctx: 5)
    settled = await failed(worker)
    assert settled.run.error is not None
    assert settled.run.error["message"] == "the agent's system function returned int, not a string"


async def test_a_system_function_that_hangs_is_silence(worker: Worker) -> None:
    async def hangs(_ctx: RunContext) -> str:
        await asyncio.Event().wait()
        return ""

    worker.script(says("Hi."), system=hangs, timeout_s=0.05)
    settled = await failed(worker)
    assert settled.run.error is not None
    assert settled.run.error["code"] == "RUN_TIMEOUT"
