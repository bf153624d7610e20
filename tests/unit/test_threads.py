"""Threads of sync tools: parallel, never fewer than they were, whatever a tool does to its own."""

import asyncio
import contextvars
import threading

import pytest

from runyard_workers.threads import ThreadCall, ToolThreads

pytestmark = pytest.mark.anyio

GUARD_S = 30.0


async def value(call: ThreadCall) -> object:
    async with asyncio.timeout(GUARD_S):
        result, error = await call.outcome
    if error is not None:
        raise error
    return result


async def started(call: ThreadCall) -> None:
    async with asyncio.timeout(GUARD_S):
        await call.started


async def test_work_runs_in_another_thread_and_gives_its_value() -> None:
    assert await value(ToolThreads(1).submit(threading.get_ident)) != threading.get_ident()


async def test_as_many_run_at_once_as_there_are_threads() -> None:
    threads, meeting = ToolThreads(3), threading.Barrier(3, timeout=GUARD_S)
    calls = [threads.submit(meeting.wait) for _ in range(3)]
    assert sorted([await value(call) for call in calls]) == [0, 1, 2]


async def test_threads_are_used_again() -> None:
    threads = ToolThreads(2)
    idents = {await value(threads.submit(threading.get_ident)) for _ in range(20)}
    assert len(idents) <= 2


async def test_more_work_than_threads_waits_its_turn(block: threading.Event) -> None:
    threads = ToolThreads(1)
    first, second = threads.submit(block.wait), threads.submit(lambda: "second")
    await started(first)
    assert not second.started.done()
    block.set()
    assert await value(second) == "second"


@pytest.mark.parametrize("error", [ValueError("no"), SystemExit(3), KeyboardInterrupt(), StopIteration(1)])
async def test_whatever_work_raises_is_told_and_the_thread_goes_on(error: BaseException) -> None:
    threads = ToolThreads(1)

    def fail() -> None:
        raise error

    async with asyncio.timeout(GUARD_S):
        assert await threads.submit(fail).outcome == (None, error)
    assert await value(threads.submit(lambda: "alive")) == "alive"


async def test_an_abandoned_thread_is_replaced_each_time(block: threading.Event) -> None:
    threads = ToolThreads(1)
    for _ in range(3):
        stuck = threads.submit(block.wait)
        await started(stuck)
        threads.abandon(stuck)
    assert await value(threads.submit(lambda: "served")) == "served"


async def test_an_abandoned_thread_that_comes_back_is_no_extra_one(block: threading.Event) -> None:
    threads = ToolThreads(1)
    stuck = threads.submit(block.wait)
    await started(stuck)
    threads.abandon(stuck)
    block.set()
    idents = {await value(threads.submit(threading.get_ident)) for _ in range(20)}
    assert len(idents) == 1


async def test_work_that_is_abandoned_before_its_turn_never_runs(block: threading.Event) -> None:
    threads, ran = ToolThreads(1), threading.Event()
    first, second = threads.submit(block.wait), threads.submit(ran.set)
    await started(first)
    threads.abandon(second)
    block.set()
    assert await value(threads.submit(lambda: "third")) == "third"
    assert not ran.is_set()


async def test_work_sees_the_context_variables_of_its_caller() -> None:
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable")
    variable.set("of the caller")
    assert await value(ToolThreads(1).submit(variable.get)) == "of the caller"


def test_work_that_ends_after_its_loop_ends_in_silence(block: threading.Event) -> None:
    threads, ended = ToolThreads(1), threading.Event()

    def outlive_the_loop() -> None:
        block.wait(GUARD_S)
        ended.set()

    async def leave() -> None:
        await started(threads.submit(outlive_the_loop))

    asyncio.run(leave())
    block.set()
    assert ended.wait(GUARD_S)
