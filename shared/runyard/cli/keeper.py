"""Keeps the worker running: restarts it after a crash, and when a file is saved."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

from runyard.cli.process import ChildExitedError, Process, Show, how_it_ended
from runyard.cli.race import race

RESTART_DELAYS_S = (1.0, 2.0, 5.0, 10.0, 30.0)
"""One after the other while it keeps crashing, then always the last; saving a file cuts a delay short."""

STEADY_S = 60.0  # a process that lived this long begins with the first delay again

EXIT_START_ERROR = 2
"""An entry point's exit code when it cannot start. The same start would fail again: only a change can help."""


class Keeper:
    def __init__(self, start: Callable[[], Awaitable[Process]], *, show: Show) -> None:
        self._start = start
        self._show = show
        self._saved = asyncio.Event()
        self._crashes = 0

    def saved(self, path: str) -> None:
        """A file was saved that the process may have read."""
        self._show("runyard", f"{path} was saved: the worker restarts")
        self._saved.set()

    async def keep(self) -> None:
        """Never returns.

        Raises:
            ChildExitedError: the very first process could not start.
        """
        first = True
        while True:
            self._saved.clear()
            process = await self._start()
            began_s = asyncio.get_running_loop().time()
            match await race(process.exited(), self._until_saved()):
                case None:
                    await process.stop()
                case code if code == EXIT_START_ERROR and first:
                    raise ChildExitedError(process.child.name, code, process.last_line)
                case code if code == EXIT_START_ERROR:
                    self._show("runyard", "the worker cannot start: it is tried again when a file is saved")
                    await self._saved.wait()
                case code:
                    await self._wait_after_crash(code, lived_s=asyncio.get_running_loop().time() - began_s)
            first = False

    async def _wait_after_crash(self, code: int, *, lived_s: float) -> None:
        self._crashes = 1 if lived_s > STEADY_S else self._crashes + 1
        delay_s = RESTART_DELAYS_S[min(self._crashes, len(RESTART_DELAYS_S)) - 1]
        self._show("runyard", f"the worker {how_it_ended(code)}: it starts again in {delay_s:g} s")
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._saved.wait(), delay_s)

    async def _until_saved(self) -> None:
        await self._saved.wait()
