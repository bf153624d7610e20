"""A turn's calls: what may run is decided by the ledger, and each ends in a result, whatever its tool does."""

import asyncio
import contextlib
import gc
import threading
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import Annotated, Any

import pytest
import structlog
from pydantic import AfterValidator
from tests.fakes.contexts import context
from tests.fakes.rows import RUN, tool_use

from runyard import Refused, RunContext, tool
from runyard.authoring.tools import Tool
from runyard.blocks import INTERRUPTED
from runyard.db.records import Call
from runyard.ids import InvocationId
from runyard.runs import CallState
from runyard_workers import calls
from runyard_workers.author_code import contain_tasks
from runyard_workers.calls import Batch, CallOutcome, ReadyCall, plan_batch, run_group
from runyard_workers.results import ToolResult, error_result
from runyard_workers.threads import ToolThreads

pytestmark = pytest.mark.anyio

GUARD_S = 30.0


@tool
async def lookup(q: str, limit: int = 5) -> str:
    return f"{q}:{limit}"


@tool(exclusive=True)
async def lock_up() -> str:
    return "locked"


@tool(idempotent=True)
async def pay() -> str:
    return "paid"


TOOLS = {item.name: item for item in (lookup, lock_up, pay)}


def planned(index: int, name: str = "lookup", **changes: Any) -> Call:
    call = Call(
        run_id=RUN,
        assistant_seq=2,
        index=index,
        invocation_id=InvocationId("inv_1"),
        call_id=f"toolu_{index}",
        name=name,
        idempotent=name == "pay",
        state=CallState.PLANNED,
        content=None,
        is_error=None,
        started_at=None,
        finished_at=None,
    )
    return replace(call, **changes)


def plan(*calls: Call, **arguments: Any) -> Batch:
    blocks = [tool_use(call.call_id, call.name, **(arguments or {"q": "pylon"})) for call in calls]
    return plan_batch(blocks, calls, TOOLS)


def names(batch: Batch) -> list[list[str]]:
    return [[call.tool.name for call in group] for group in batch.groups]


def test_planned_calls_run_together_and_exclusive_ones_after_them_alone() -> None:
    batch = plan_batch(
        [
            tool_use("a", "lock_up"),
            tool_use("b", "lookup", q="1"),
            tool_use("c", "lock_up"),
            tool_use("d", "lookup", q="2"),
        ],
        [planned(0, "lock_up"), planned(1), planned(2, "lock_up"), planned(3)],
        TOOLS,
    )
    assert names(batch) == [["lookup", "lookup"], ["lock_up"], ["lock_up"]]
    assert [[call.index for call in group] for group in batch.groups] == [[1, 3], [0], [2]]
    assert (batch.finished, batch.refused) == ({}, {})


def test_arguments_arrive_with_their_defaults() -> None:
    ((call,),) = plan(planned(0)).groups
    assert call.arguments == {"q": "pylon", "limit": 5}


def test_a_finished_call_keeps_its_result_and_does_not_run() -> None:
    blocks = [{"type": "text", "text": "three pages"}]
    batch = plan(
        planned(0, state=CallState.FINISHED, content="", is_error=False),
        planned(1, state=CallState.FINISHED, content=blocks, is_error=False),
        planned(2, state=CallState.FINISHED, content="no such page", is_error=True),
    )
    assert batch.finished == {
        0: ToolResult(content=""),
        1: ToolResult(content=blocks),
        2: ToolResult(content="no such page", is_error=True),
    }
    assert batch.groups == ()


def test_a_call_that_had_started_may_have_acted() -> None:
    batch = plan(planned(0, state=CallState.STARTED))
    assert batch.refused == {0: error_result(INTERRUPTED)}
    assert batch.groups == ()


def test_an_idempotent_call_that_had_started_runs_again() -> None:
    batch = plan_batch([tool_use("a", "pay")], [planned(0, "pay", state=CallState.STARTED)], TOOLS)
    assert names(batch) == [["pay"]]


def test_what_the_ledger_says_counts_not_what_the_tool_is_now() -> None:
    batch = plan_batch([tool_use("a", "pay")], [planned(0, "pay", idempotent=False, state=CallState.STARTED)], TOOLS)
    assert batch.refused == {0: error_result(INTERRUPTED)}


def test_an_unknown_tool_is_an_error_beside_siblings_that_run() -> None:
    batch = plan_batch([tool_use("a", "ghost"), tool_use("b", q="pylon")], [planned(0, "ghost"), planned(1)], TOOLS)
    assert batch.refused == {0: error_result('Unknown tool "ghost"')}
    assert names(batch) == [["lookup"]]


def test_arguments_that_do_not_fit_are_an_error_that_names_them() -> None:
    batch = plan(planned(0), limit="many")
    assert batch.groups == ()
    assert batch.refused[0].is_error
    assert "limit" in str(batch.refused[0].content)


def test_an_authors_validator_may_raise_anything() -> None:
    def known(code: str) -> str:
        return {"A": "a"}[code]

    @tool
    async def book(code: Annotated[str, AfterValidator(known)]) -> str:
        return code

    batch = plan_batch([tool_use("a", "book", code="B")], [planned(0, "book")], {"book": book})
    assert batch.refused == {0: error_result("KeyError: 'B'")}


def tasks_of_calls() -> set[asyncio.Task[Any]]:
    def file(task: asyncio.Task[Any]) -> str:
        coroutine: Any = task.get_coro()
        return str(coroutine.cr_code.co_filename)

    return {task for task in asyncio.all_tasks() if "runyard_workers" in file(task)}


@pytest.fixture
async def nothing_left() -> AsyncIterator[None]:
    """After the test: no task goes on."""
    yield
    async with asyncio.timeout(GUARD_S):
        while left := tasks_of_calls():
            await asyncio.wait(left)


def ready(*tools: Tool[..., Any]) -> list[ReadyCall]:
    return [
        ReadyCall(index=index, call_id=f"toolu_{index}", tool=item, arguments={}, has_started=False)
        for index, item in enumerate(tools)
    ]


async def outcomes(
    group: Sequence[ReadyCall], threads: ToolThreads | None = None, run_context: RunContext | None = None
) -> dict[int, CallOutcome]:
    async with (
        asyncio.timeout(GUARD_S),
        contextlib.aclosing(
            run_group(
                group, threads or ToolThreads(4), lambda call: run_context or context(call.call_id), asyncio.Event()
            )
        ) as running,
    ):
        return {outcome.index: outcome async for outcome in running}


async def result_of(item: Tool[..., Any], **options: Any) -> ToolResult:
    return (await outcomes(ready(item), **options))[0].result


def raising(error: BaseException, *, is_async: bool) -> Tool[..., Any]:
    async def on_the_loop() -> None:
        raise error

    def in_a_thread() -> None:
        raise error

    return tool(on_the_loop if is_async else in_a_thread)


@pytest.mark.usefixtures("nothing_left")
@pytest.mark.parametrize("is_async", [True, False])
@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ValueError("no such order"), "ValueError: no such order"),
        (TimeoutError("upstream"), "TimeoutError: upstream"),
        (asyncio.CancelledError(), "CancelledError"),
        (SystemExit(3), "SystemExit: 3"),
        (KeyboardInterrupt(), "KeyboardInterrupt"),
        (GeneratorExit(), "GeneratorExit"),
        (
            ExceptionGroup("two", [ValueError("1"), OSError("2")]),
            "ExceptionGroup: two (2 sub-exceptions): ValueError: 1",
        ),
        (ValueError("a\x00b\ud800"), "ValueError: a\ufffdb\ufffd"),
    ],
    ids=["exception", "timeout", "cancelled", "exit", "interrupt", "generator", "group", "unclean"],
)
async def test_whatever_a_tool_raises_is_its_result(error: BaseException, told: str, is_async: bool) -> None:
    assert await result_of(raising(error, is_async=is_async)) == error_result(told)


async def test_the_log_has_the_place_of_a_failure_and_none_of_its_words() -> None:
    @tool
    async def charge() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(declined())

    async def declined() -> None:
        raise ValueError("the card of Ada")

    @tool
    async def refuses() -> None:
        raise Refused("ORDER_SENT", "The parcel has left")

    with structlog.testing.capture_logs() as logged:
        await outcomes(ready(charge, refuses))
    (told,) = logged
    line = declined.__code__.co_firstlineno + 1
    assert told.pop("at") == f"{__file__}:{line} in declined"
    assert told == {"event": "tool failed", "log_level": "info", "tool": "charge", "error": "ExceptionGroup"}


class Hostile(BaseException):
    """Its words, what it holds and even what it is: asked for, each exits."""

    def __str__(self) -> str:
        raise SystemExit

    __repr__ = __str__


class HostileValue(dict[str, str]):
    def items(self) -> Any:
        raise SystemExit


class HostileProxy:
    @property
    def __class__(self) -> Any:
        raise SystemExit


@pytest.mark.usefixtures("nothing_left")
@pytest.mark.parametrize("is_async", [True, False])
async def test_no_words_of_an_exception_end_the_loop(is_async: bool) -> None:
    assert await result_of(raising(Hostile(), is_async=is_async)) == error_result("Hostile")


@pytest.mark.usefixtures("nothing_left")
@pytest.mark.parametrize("kind", [HostileValue, HostileProxy])
@pytest.mark.parametrize("is_async", [True, False])
async def test_no_value_ends_the_loop_when_it_is_looked_at(kind: type[Any], is_async: bool) -> None:
    async def on_the_loop() -> Any:
        return kind()

    def in_a_thread() -> Any:
        return kind()

    result = await result_of(tool(on_the_loop if is_async else in_a_thread))
    assert result.is_error
    assert "SystemExit" in str(result.content)


async def test_no_validator_ends_the_loop() -> None:
    def exits(value: str) -> str:
        raise SystemExit

    @tool
    async def validated(q: Annotated[str, AfterValidator(exits)]) -> None: ...

    batch = plan_batch([tool_use("toolu_0", "validated", q="x")], [planned(0, "validated")], {"validated": validated})
    assert batch.refused == {0: error_result("SystemExit")}


@pytest.mark.usefixtures("nothing_left")
async def test_no_task_that_a_tool_starts_ends_the_loop() -> None:
    @tool
    async def grouped() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(_exits())

    @tool
    async def alone() -> str:
        (error,) = await asyncio.gather(_exits(), return_exceptions=True)
        return str(error)

    async def unawaited() -> str:
        return "never"

    @tool
    async def called_off() -> str:
        task = asyncio.create_task(unawaited())
        task.cancel()
        await asyncio.wait([task])
        return str(task.cancelled())

    loop = asyncio.get_running_loop()
    contain_tasks(loop)
    try:
        assert (await result_of(grouped)).is_error
        assert await result_of(alone) == ToolResult(content="a task ended by SystemExit")
        assert await result_of(called_off) == ToolResult(content="True")
    finally:
        loop.set_task_factory(None)


async def _exits() -> None:
    raise SystemExit


@pytest.mark.usefixtures("nothing_left")
async def test_a_failing_tool_takes_no_sibling_along() -> None:
    failed = asyncio.Event()

    @tool
    async def fails() -> None:
        failed.set()
        raise RuntimeError("at once")

    @tool
    async def gives_up() -> None:
        raise asyncio.CancelledError

    @tool
    async def takes_longer() -> str:
        await failed.wait()
        return "good work"

    found = await outcomes(ready(takes_longer, fails, gives_up))
    assert found[0].result == ToolResult(content="good work")
    assert [found[1].result.is_error, found[2].result.is_error] == [True, True]


@pytest.mark.usefixtures("nothing_left")
async def test_outcomes_come_as_they_are_done() -> None:
    first_is_out = asyncio.Event()

    @tool
    async def slow() -> str:
        await first_is_out.wait()
        return "slow"

    @tool
    async def fast() -> str:
        return "fast"

    order = []
    async with contextlib.aclosing(
        run_group(ready(slow, fast), ToolThreads(1), lambda _: context(), asyncio.Event())
    ) as running:
        async for outcome in running:
            order.append(outcome.result.content)
            first_is_out.set()
    assert order == ["fast", "slow"]


@pytest.mark.usefixtures("nothing_left")
async def test_sync_tools_run_at_the_same_time() -> None:
    meeting = threading.Barrier(3, timeout=GUARD_S)

    @tool
    def meet() -> str:
        meeting.wait()
        return "met"

    found = await outcomes(ready(meet, meet, meet), ToolThreads(3))
    assert [outcome.result.content for outcome in found.values()] == ["met"] * 3


@pytest.mark.usefixtures("nothing_left")
async def test_an_async_tool_that_swallows_its_cancellation_is_left_behind() -> None:
    let_go = asyncio.Event()

    @tool(timeout_s=0.01)
    async def stubborn() -> str:
        while not let_go.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await let_go.wait()
        return "too late"

    run_context = context()
    assert await result_of(stubborn, run_context=run_context) == error_result('Tool "stubborn" timed out after 0.01 s')
    assert run_context.cancelled.is_set()
    let_go.set()


@pytest.mark.usefixtures("nothing_left")
async def test_a_sync_tool_that_blocks_is_left_and_its_thread_replaced(block: threading.Event) -> None:
    @tool(timeout_s=0.01)
    def stuck() -> str:
        block.wait(GUARD_S)
        return "too late"

    @tool
    def quick() -> str:
        return "served"

    threads = ToolThreads(1)
    for _ in range(3):
        assert (await result_of(stuck, threads=threads)).content == 'Tool "stuck" timed out after 0.01 s'
    assert await result_of(quick, threads=threads) == ToolResult(content="served")


@pytest.mark.usefixtures("nothing_left")
async def test_a_sync_tool_learns_of_its_timeout(block: threading.Event) -> None:
    noticed = asyncio.Event()
    loop = asyncio.get_running_loop()

    @tool(timeout_s=0.01)
    def watchful(ctx: RunContext) -> None:
        while not ctx.cancelled.is_set():
            block.wait(0.001)
        loop.call_soon_threadsafe(noticed.set)

    assert (await result_of(watchful)).is_error
    async with asyncio.timeout(GUARD_S):
        await noticed.wait()


@pytest.mark.usefixtures("nothing_left")
async def test_a_sync_function_may_return_an_awaitable() -> None:
    wrapped = tool(name="wrapped")(lambda: lookup(q="pylon"))
    assert await result_of(wrapped) == ToolResult(content="pylon:5")


@pytest.mark.usefixtures("nothing_left")
@pytest.mark.parametrize(
    "value", [{1, object()}, object, (number for number in range(3))], ids=["set", "class", "generator"]
)
async def test_a_value_without_a_json_form_is_an_error_that_names_the_tool(value: object) -> None:
    @tool
    async def odd() -> object:
        return value

    result = await result_of(odd)
    assert result.is_error
    assert "'odd'" in str(result.content)


@pytest.mark.usefixtures("nothing_left")
async def test_dropping_a_group_cancels_what_runs(block: threading.Event) -> None:
    begun = asyncio.Event()
    ended = asyncio.Event()

    @tool
    async def fast() -> str:
        return "fast"

    @tool
    async def waits() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            ended.set()
            raise

    @tool
    def blocks() -> None:
        block.wait(GUARD_S)

    run_context = context()
    threads = ToolThreads(1)
    async with (
        asyncio.timeout(GUARD_S),
        contextlib.aclosing(
            run_group(ready(fast, waits, blocks), threads, lambda _: run_context, asyncio.Event())
        ) as running,
    ):
        async for _ in running:
            await begun.wait()
            break
    async with asyncio.timeout(GUARD_S):
        await ended.wait()
    assert run_context.cancelled.is_set()
    assert await result_of(tool(name="next")(lambda: "served"), threads=threads) == ToolResult(content="served")


@pytest.mark.usefixtures("nothing_left")
async def test_tools_of_a_cancelled_run_are_told_and_their_results_count() -> None:
    cancelled, told = asyncio.Event(), []

    @tool
    async def patient(ctx: RunContext) -> str:
        cancelled.set()
        await ctx.cancelled.wait()
        told.append(ctx.call_id)
        return "half of it"

    group = run_group(ready(patient, patient), ToolThreads(1), lambda call: context(call.call_id), cancelled)
    async with asyncio.timeout(GUARD_S), contextlib.aclosing(group) as running:
        found = {outcome.index: outcome.result async for outcome in running}
    assert found == {0: ToolResult(content="half of it"), 1: ToolResult(content="half of it")}
    assert sorted(told) == ["toolu_0", "toolu_1"]


@pytest.mark.usefixtures("nothing_left")
async def test_tools_that_ignore_a_cancel_are_left_behind_together(
    block: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that ends meanwhile gives the others no more time."""
    monkeypatch.setattr(calls, "CANCEL_GRACE_S", 0)
    cancelled, loop = asyncio.Event(), asyncio.get_running_loop()

    @tool
    async def ends(ctx: RunContext) -> str:
        await ctx.cancelled.wait()
        return "in time"

    @tool
    async def ignores() -> None:
        await asyncio.Event().wait()

    @tool
    def blocks() -> None:
        loop.call_soon_threadsafe(cancelled.set)
        block.wait(GUARD_S)

    threads = ToolThreads(1)
    group = run_group(ready(ignores, blocks, ends), threads, lambda call: context(call.call_id), cancelled)
    async with asyncio.timeout(GUARD_S), contextlib.aclosing(group) as running:
        found = {outcome.index: outcome.result async for outcome in running}
    assert (found[0], found[1]) == (error_result(INTERRUPTED), error_result(INTERRUPTED))
    assert await result_of(tool(name="next")(lambda: "served"), threads=threads) == ToolResult(content="served")


@pytest.mark.usefixtures("nothing_left")
async def test_a_group_whose_task_is_cancelled_is_dropped() -> None:
    begun = asyncio.Event()

    @tool
    async def waits() -> None:
        begun.set()
        await asyncio.Event().wait()

    task = asyncio.create_task(outcomes(ready(waits)))
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_the_loop_has_nothing_to_complain_about(block: threading.Event) -> None:
    complaints: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, complaint: complaints.append(complaint))
    raised = threading.Event()

    @tool(timeout_s=0.01)
    async def overstays() -> None:
        await asyncio.Event().wait()

    @tool(timeout_s=0.01)
    def raises_too_late() -> None:
        block.wait(GUARD_S)
        raised.set()
        raise ValueError("nobody asks any more")

    await outcomes(ready(overstays, raises_too_late, raising(SystemExit(), is_async=True)))
    block.set()
    assert raised.wait(GUARD_S)
    await outcomes(ready(lock_up))
    gc.collect()
    assert complaints == []
