"""Running the tools that a turn asks for: all at the same time, except exclusive ones. Each call ends in a result,
whatever happens.

Every exception of a tool becomes its result. A batch is stopped only if its run is dropped.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from runyard import traces
from runyard.authoring.context import RunContext
from runyard.authoring.errors import InvalidToolInput
from runyard.authoring.tools import Tool
from runyard.blocks import CANCELLED, INTERRUPTED, Block
from runyard.db.records import Call
from runyard.runs import CallState
from runyard_workers import spans
from runyard_workers.author_code import (
    FailedError,
    NotBegunError,
    TimedOutError,
    log_failure,
    run_author_code,
    unless_cancelled,
)
from runyard_workers.results import ToolResult, UnserializableResult, describe_exception, error_result, to_result
from runyard_workers.threads import ToolThreads

CANCEL_GRACE_S = 10.0
"""How long tools may go on after they were told of a cancel."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ReadyCall:
    """A call whose tool is known and whose arguments are valid. `has_started`: on a worker before."""

    index: int
    call_id: str
    tool: Tool
    arguments: dict[str, Any]
    has_started: bool

    @property
    def result_unless_it_runs(self) -> ToolResult:
        """What the model is told if the run is cancelled before the call begins here."""
        return error_result(INTERRUPTED if self.has_started else CANCELLED)


@dataclass(frozen=True, kw_only=True, slots=True)
class CallOutcome:
    index: int
    result: ToolResult
    duration_ms: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Batch:
    """The calls of one turn. `finished`: the ledger has their results. `refused`: they never run."""

    finished: dict[int, ToolResult]
    refused: dict[int, ToolResult]
    groups: tuple[tuple[ReadyCall, ...], ...]


def plan_batch(blocks: Sequence[Block], ledger: Sequence[Call], tools: Mapping[str, Tool]) -> Batch:
    """Decide by the ledger what may run. A call that was started before runs again only if it is idempotent."""
    finished: dict[int, ToolResult] = {}
    refused: dict[int, ToolResult] = {}
    together: list[ReadyCall] = []
    alone: list[ReadyCall] = []
    for index, (block, call) in enumerate(zip(blocks, ledger, strict=True)):
        if call.state is CallState.FINISHED:
            finished[index] = ToolResult(content=call.content or "", is_error=bool(call.is_error))
        elif call.state is CallState.STARTED and not call.idempotent:
            refused[index] = error_result(INTERRUPTED)
        elif (tool := tools.get(call.name)) is None:
            refused[index] = error_result(f'Unknown tool "{call.name}"')
        else:
            try:
                arguments = tool.arguments(block["input"])
            except InvalidToolInput as error:
                refused[index] = error_result(str(error))
                continue
            except BaseException as error:  # noqa: BLE001 - pydantic lets what an author's validator raises through
                refused[index] = error_result(describe_exception(error))
                continue
            ready = ReadyCall(
                index=index,
                call_id=call.call_id,
                tool=tool,
                arguments=arguments,
                has_started=call.state is CallState.STARTED,
            )
            (alone if tool.exclusive else together).append(ready)
    groups = ([tuple(together)] if together else []) + [(call,) for call in alone]
    return Batch(finished=finished, refused=refused, groups=tuple(groups))


async def run_group(
    group: Sequence[ReadyCall],
    threads: ToolThreads,
    context_of: Callable[[ReadyCall], RunContext],
    cancelled: asyncio.Event,
) -> AsyncGenerator[CallOutcome, None]:
    """Run calls at the same time; yields outcomes as they come. Close it (`aclosing`) to drop what still runs.

    Once `cancelled` is set the tools are told and have 10 s; those that still run then are abandoned as interrupted.
    Those that wait for a thread do not begin any more.
    """
    began = time.monotonic()
    begun: set[int] = set()
    contexts = [context_of(call) for call in group]
    tasks = {
        asyncio.create_task(_run(call, threads, context, begun), name=call.call_id): call
        for call, context in zip(group, contexts, strict=True)
    }
    pending = set(tasks)
    grace = asyncio.create_task(_grace(cancelled, contexts))
    try:
        while pending and not grace.done():
            done, _ = await asyncio.wait({*pending, grace}, return_when=asyncio.FIRST_COMPLETED)
            for task in [task for task in tasks if task in done]:
                pending.discard(task)
                yield task.result()
        for task in [task for task in tasks if task in pending]:
            if task.done():  # while another call's result was being stored
                yield task.result()
            else:
                call = tasks[task]
                result = error_result(INTERRUPTED) if call.index in begun else call.result_unless_it_runs
                yield CallOutcome(index=call.index, result=result, duration_ms=_since_ms(began))
    finally:
        grace.cancel()
        for task in pending:
            task.cancel()


async def _grace(cancelled: asyncio.Event, contexts: Sequence[RunContext]) -> None:
    """Return when the time that tools have after a cancel is over."""
    await cancelled.wait()
    for context in contexts:
        context.cancelled.set()
    await asyncio.sleep(CANCEL_GRACE_S)


async def _run(call: ReadyCall, threads: ToolThreads, context: RunContext, begun: set[int]) -> CallOutcome:
    began = time.monotonic()
    with spans.executing_tool(call.tool.name, call.call_id) as span:
        result = await _result(call, threads, context, begun)
        if result.is_error:
            traces.failed(span, "tool_error")
    return CallOutcome(index=call.index, result=result, duration_ms=_since_ms(began))


def _since_ms(began: float) -> int:
    return int((time.monotonic() - began) * 1000)


async def _result(call: ReadyCall, threads: ToolThreads, context: RunContext, begun: set[int]) -> ToolResult:
    tool = call.tool
    arguments = dict(call.arguments)
    if tool.context_parameter is not None:
        arguments[tool.context_parameter] = context

    def work() -> Any:
        begun.add(call.index)
        return tool.handler(**arguments)

    try:
        value = await run_author_code(
            unless_cancelled(work, context), is_async=tool.is_async, timeout_s=tool.timeout_s, threads=threads
        )
        return value if type(value) is ToolResult else to_result(value, tool=tool.name)
    except TimedOutError:
        context.cancelled.set()
        return error_result(f'Tool "{tool.name}" timed out after {tool.timeout_s:g} s')
    except FailedError as failure:
        if isinstance(failure.error, NotBegunError):
            return call.result_unless_it_runs
        log_failure(context, tool.name, failure.error)
        return error_result(describe_exception(failure.error))
    except UnserializableResult as error:
        return error_result(str(error))
    except asyncio.CancelledError:
        context.cancelled.set()
        raise
