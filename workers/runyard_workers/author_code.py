"""Runs an author's function, sync or async, so that neither its exceptions nor its silence can harm the event loop.

`SystemExit` and `KeyboardInterrupt` that leave a task would end the loop, and a `CancelledError` of the author's own
would look like a dropped run: all are raised as `FailedError`.
"""

import asyncio
import inspect
import os
import signal
import traceback
from collections.abc import Callable, Coroutine, Generator
from contextvars import ContextVar
from typing import Any

from runyard.authoring.context import RunContext
from runyard.authoring.errors import Refused
from runyard_workers.agent_modules import mounted
from runyard_workers.threads import Outcome, ToolThreads

EXITS = (SystemExit, KeyboardInterrupt)
"""A task that raises one of these also ends its event loop."""

_IS_AUTHORS = ContextVar("runyard.is_authors", default=False)
"""Tasks and threads inherit it from the code that starts them."""


class TimedOutError(Exception):
    """The code took too long. Not a TimeoutError, which an author's code may raise itself."""


class FailedError(Exception):
    """The code raised `error`, which may be of any kind."""

    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self.error = error


class NotBegunError(Exception):
    """The run was cancelled while the code waited for a thread."""


async def run_author_code(work: Callable[[], Any], *, is_async: bool, timeout_s: float, threads: ToolThreads) -> Any:
    """What `work` returns. A sync function runs in a thread; if it returns an awaitable, that is awaited too.

    Waiting for a thread does not count against `timeout_s`. Code that swallows its cancellation, and a thread, which
    cannot be stopped, are left behind; another thread takes its place.

    Raises:
        FailedError, TimedOutError: see there. A CancelledError is the caller's own.
    """
    token = _IS_AUTHORS.set(True)
    try:
        value = await (_on_loop(work, timeout_s) if is_async else _in_thread(work, timeout_s, threads))
        if not is_async and _is_awaitable(value):
            return await _on_loop(lambda: value, timeout_s)
        return value
    finally:
        _IS_AUTHORS.reset(token)


def unless_cancelled(work: Callable[[], Any], context: RunContext) -> Callable[[], Any]:
    """`work` as it is called when its turn has come. It raises `NotBegunError` if the run was cancelled by then."""

    def begin() -> Any:
        if context.cancelled.is_set():
            raise NotBegunError
        return work()

    return begin


def log_failure(context: RunContext, tool: str, error: BaseException) -> None:
    """Log where it failed, for the author; what the exception says is for the model, and in no log."""
    if not isinstance(error, Refused):
        context.log.info("tool failed", tool=tool, error=type(error).__name__, at=_place_of(error))


def _place_of(error: BaseException) -> str:
    """Where it was raised, for a log that may not have its words: `/srv/agents/shop.py:41 in refund`.

    It is the innermost line of authors' files, else of any; "" if it was not raised. Of a group the first exception
    counts.
    """
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    folder, place, own = mounted(), "", ""
    for frame, line in traceback.walk_tb(error.__traceback__):
        code = frame.f_code
        place = f"{code.co_filename}:{line} in {code.co_name}"
        if folder is not None and code.co_filename.startswith(f"{folder}{os.sep}"):
            own = place
    return own or place


def contain_tasks(loop: asyncio.AbstractEventLoop) -> None:
    """From now on a SystemExit in a task that authors' code starts is that task's error and does not end the loop."""
    loop.set_task_factory(_new_task)


def _new_task(loop: asyncio.AbstractEventLoop, work: Any, **options: Any) -> asyncio.Task[Any]:
    return asyncio.Task(_Contained(work) if _IS_AUTHORS.get() else work, loop=loop, **options)


def release_forks() -> None:
    """From now on a process that authors' code forks obeys signals itself.

    It inherits the loop's handlers and the socket by which they wake the loop: a SIGTERM for the child would not end
    it, and would make this process leave. What comes before the child has its own handlers waits for them.
    """
    stops = (signal.SIGTERM, signal.SIGINT)

    def hold() -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, stops)

    def let_through() -> None:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, stops)

    def obey() -> None:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        let_through()

    os.register_at_fork(before=hold, after_in_parent=let_through, after_in_child=obey)


class _Contained(Coroutine[Any, Any, Any]):
    """A coroutine that raises exits as errors."""

    def __init__(self, inner: Coroutine[Any, Any, Any]) -> None:
        self._inner = inner
        self.__qualname__ = getattr(inner, "__qualname__", type(inner).__qualname__)  # asyncio's logs show it

    def __await__(self) -> Generator[Any, Any, Any]:
        return self._inner.__await__()

    def send(self, value: Any) -> Any:
        try:
            return self._inner.send(value)
        except EXITS as error:
            raise _as_error(error) from error

    def throw(self, *error: Any) -> Any:
        try:
            return self._inner.throw(*error)
        except EXITS as exit_:
            raise _as_error(exit_) from exit_

    def close(self) -> None:
        self._inner.close()


def _as_error(error: BaseException) -> RuntimeError:
    return RuntimeError(f"a task ended by {type(error).__name__}")


def _is_awaitable(value: Any) -> bool:
    try:
        return inspect.isawaitable(value)
    except BaseException as error:  # noqa: BLE001 - a lazy proxy is asked for its class, and may raise anything
        raise FailedError(error) from None


async def _on_loop(work: Callable[[], Any], timeout_s: float) -> Any:
    task = asyncio.create_task(_captured(work))
    try:
        done, _ = await asyncio.wait({task}, timeout=timeout_s)
    except asyncio.CancelledError:
        task.cancel()
        raise
    if not done:
        task.cancel()
        raise TimedOutError
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
        raise TimedOutError
    return _value(call.outcome.result())


def _value(outcome: Outcome) -> Any:
    value, error = outcome
    if error is not None:
        raise FailedError(error)
    return value
