"""Runs an author's function, sync or async, so that nothing it does reaches the loop: no silence, no exception.

`SystemExit` and `KeyboardInterrupt` that leave a task end the event loop, and a `CancelledError` of its own looks like
a run being dropped: they are all told as `FailedError`.
"""

import asyncio
import inspect
from collections.abc import Callable
from typing import Any

from runyard_workers.threads import Outcome, ToolThreads


class OverstayedError(Exception):
    """It took too long. Not a TimeoutError, which an author's code may raise by itself."""


class FailedError(Exception):
    """It raised `error`, of whatever kind."""

    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self.error = error


async def run_author_code(work: Callable[[], Any], *, is_async: bool, timeout_s: float, threads: ToolThreads) -> Any:
    """What `work` returns; of a sync function, which runs in a thread, also what the awaitable that it returned gives.

    Waiting for a thread does not count against `timeout_s`. Code that swallows its cancellation, and a thread that
    cannot be stopped, are left behind; another thread takes the place.

    Raises:
        FailedError, OverstayedError: see there. A CancelledError is the caller's own.
    """
    value = await (_on_loop(work, timeout_s) if is_async else _in_thread(work, timeout_s, threads))
    if not is_async and inspect.isawaitable(value):
        return await _on_loop(lambda: value, timeout_s)
    return value


async def _on_loop(work: Callable[[], Any], timeout_s: float) -> Any:
    task = asyncio.create_task(_captured(work))
    try:
        done, _ = await asyncio.wait({task}, timeout=timeout_s)
    except asyncio.CancelledError:
        task.cancel()
        raise
    if not done:
        task.cancel()
        raise OverstayedError
    return _value(task.result())


async def _captured(work: Callable[[], Any]) -> Outcome:
    try:
        return await work(), None
    except BaseException as error:  # noqa: BLE001 - told to the caller as a value
        return None, error


async def _in_thread(work: Callable[[], Any], timeout_s: float, threads: ToolThreads) -> Any:
    call = threads.submit(work)
    try:
        await call.started
        done, _ = await asyncio.wait({call.outcome}, timeout=timeout_s)
    except asyncio.CancelledError:
        threads.abandon(call)
        raise
    if not done:
        threads.abandon(call)
        raise OverstayedError
    return _value(call.outcome.result())


def _value(outcome: Outcome) -> Any:
    value, error = outcome
    if error is not None:
        raise FailedError(error)
    return value
