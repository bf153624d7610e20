"""An event loop in a thread of its own, for code that has none."""

import asyncio
import os
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import CancelledError
from dataclasses import dataclass
from typing import Self, TypeVar

T = TypeVar("T")


class Portal:
    """An event loop in a daemon thread, so one that nobody closes ends with the process. Any thread may call it.

    The first call starts the thread, in the process that calls: servers fork theirs after they have imported a program.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._started: _Started | None = None
        self._is_closed = False

    def call(self, work: Callable[[], Awaitable[T]]) -> T:
        """Run it on the loop and return its result. Interrupting the waiting thread (Ctrl-C) cancels it.

        Raises:
            RuntimeError: the portal is closed, maybe meanwhile, by another thread; or this process was forked from the
                one in which its thread runs.
        """
        with self._lock:  # what is begun here, `close` finds
            loop = self._start().loop
            future = asyncio.run_coroutine_threadsafe(_awaited(work), loop)
        try:
            return future.result()
        except CancelledError:
            if self._is_closed:
                raise _closed() from None
            raise
        except BaseException:
            future.cancel()
            raise

    def close(self, last: Callable[[], Awaitable[None]]) -> None:
        """Run `last` if anything was called, cancel what is still running, and end the thread. Nothing may be called
        afterwards.
        """
        with self._lock:
            self._is_closed = True
            started, self._started = self._started, None
        if started is not None and started.process == os.getpid():
            asyncio.run_coroutine_threadsafe(_ended(last), started.loop).result()
            started.loop.call_soon_threadsafe(started.loop.stop)
            started.thread.join()
            started.loop.close()

    def _start(self) -> "_Started":
        if self._is_closed:
            raise _closed()
        if self._started is None:
            self._started = _Started.now()
        if self._started.process != os.getpid():
            raise RuntimeError("the client was used before this process was forked: make one in this process")
        return self._started


@dataclass(frozen=True, kw_only=True, slots=True)
class _Started:
    loop: asyncio.AbstractEventLoop
    thread: threading.Thread
    process: int

    @classmethod
    def now(cls) -> Self:
        loop = asyncio.new_event_loop()
        thread = threading.Thread(target=loop.run_forever, name="runyard-client", daemon=True)
        thread.start()
        return cls(loop=loop, thread=thread, process=os.getpid())


def _closed() -> RuntimeError:
    return RuntimeError("the client is closed")


async def _awaited(work: Callable[[], Awaitable[T]]) -> T:
    return await work()


async def _ended(last: Callable[[], Awaitable[None]]) -> None:
    await last()
    loop = asyncio.get_running_loop()
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
    await loop.shutdown_asyncgens()
