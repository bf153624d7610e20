"""A reader of one run who notes when each frame came."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable

from benchmarks.system import AGENT, STREAM, System

GUARD_S = 60.0


class Reader:
    """`came_s`: for each frame so far, when it came, on the clock of `time.perf_counter`."""

    def __init__(self) -> None:
        self.came_s: list[float] = []
        self._came = asyncio.Event()

    def take(self, piece: bytes) -> None:
        self.came_s += [time.perf_counter()] * piece.count(b"id: ")
        self._came.set()

    async def until(self, holds: Callable[[], bool]) -> None:
        """Read on until it holds; it is looked at when something came.

        Raises:
            TimeoutError: it does not within a minute.
        """
        async with asyncio.timeout(GUARD_S):
            while not holds():
                self._came.clear()
                await self._came.wait()


@contextlib.asynccontextmanager
async def reading(system: System, directive: str, *, agent: str = AGENT) -> AsyncIterator[Reader]:
    """Start a run and read it, for as long as the block runs."""
    reader, caller = Reader(), await system.caller()
    following = asyncio.create_task(
        caller.follow(f"/v1/agents/{agent}/runs", {"input": directive}, reader.take, headers=STREAM)
    )
    try:
        yield reader
    finally:
        following.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await following
        caller.close()
