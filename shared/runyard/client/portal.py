"""An event loop in a thread of its own, for code that has none."""

import asyncio
import threading
from collections.abc import Awaitable
from typing import TypeVar

T = TypeVar("T")


class Portal:
    """An event loop in a daemon thread, so one that nobody closes ends with the process. Any thread may call it."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="runyard-client", daemon=True)
        self._thread.start()

    def call(self, work: Awaitable[T]) -> T:
        """Run it on the loop and return its result. Interrupting the waiting thread (Ctrl-C) cancels it."""
        future = asyncio.run_coroutine_threadsafe(_awaited(work), self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def close(self) -> None:
        """Cancel what is still running and end the thread. Nothing may be called afterwards."""
        if self._loop.is_closed():
            return
        asyncio.run_coroutine_threadsafe(_cancelled_all(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


async def _awaited(work: Awaitable[T]) -> T:
    return await work


async def _cancelled_all() -> None:
    loop = asyncio.get_running_loop()
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
    await loop.shutdown_asyncgens()
