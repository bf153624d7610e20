"""One child process of `runyard dev`: started into the group, its output shown, stopped within its grace."""

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, NoReturn, Self, TypeVar

from runyard.cli.group import ProcessGroup
from runyard.cli.output import each_line
from runyard.cli.race import race

T = TypeVar("T")
Show = Callable[[str, str], None]
"""Shows a line of a process: `show("gateway", "listening")`."""

OUTPUT_END_S = 1.0  # a grandchild that lives on holds the output open; nobody waits for it


@dataclass(frozen=True, kw_only=True)
class Child:
    """What to start. `shown`: its output appears line by line; otherwise only the last line is kept, to explain an
    exit.
    """

    name: str
    command: tuple[str, ...]
    grace_s: float
    shown: bool = True


class ChildExitedError(Exception):
    """A child ended that should have gone on."""

    def __init__(self, name: str, code: int, last_line: str) -> None:
        said = last_line.removeprefix("error: ") or "it said nothing"
        # The last line of a process that was killed is not the reason, but shows where to look.
        super().__init__(f"the {name} {how_it_ended(code)}{': ' if code >= 0 else '; its last line: '}{said}")


def how_it_ended(code: int) -> str:
    """`stopped with exit code 2` or, for a code below 0, `was ended by signal 9 (Killed)`."""
    if code >= 0:
        return f"stopped with exit code {code}"
    return f"was ended by signal {-code} ({signal.strsignal(-code)})"


class Process:
    """A running child. Its environment and working directory are the supervisor's own."""

    def __init__(self, child: Child, process: asyncio.subprocess.Process, *, output: int, show: Show) -> None:
        self.child = child
        self.last_line = ""
        self._process = process
        self._show = show
        self._output = asyncio.create_task(each_line(output, self._take))

    @classmethod
    async def start(cls, child: Child, *, group: ProcessGroup, show: Show) -> Self:
        # A pipe of our own: with asyncio's pipes, Python 3.11 counts a process as running for as long as any grandchild
        # holds one of them open.
        read_end, write_end = os.pipe()
        try:
            process = await asyncio.create_subprocess_exec(
                *child.command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=write_end,
                stderr=write_end,
                process_group=group.id,
            )
        except BaseException:
            os.close(read_end)
            raise
        finally:
            os.close(write_end)
        return cls(child, process, output=read_end, show=show)

    async def exited(self) -> int:
        """The exit code, once the process has ended and its output is taken."""
        code = await self._process.wait()
        await asyncio.wait({self._output}, timeout=OUTPUT_END_S)
        self._output.cancel()
        return code

    async def must_stay(self) -> NoReturn:
        """Never returns.

        Raises:
            ChildExitedError: the process ended.
        """
        code = await self.exited()
        raise ChildExitedError(self.child.name, code, self.last_line)

    async def until(self, ready: Coroutine[Any, Any, T]) -> T:
        """What `ready` returns, given up when the process ends before.

        Raises:
            ChildExitedError: it ended.
        """
        return await race(ready, self.must_stay())

    async def stop(self) -> None:
        """SIGTERM, and SIGKILL when the grace is over. Does nothing to a process that ended."""
        with contextlib.suppress(ProcessLookupError):
            self._process.terminate()
        try:
            await asyncio.wait_for(self._process.wait(), self.child.grace_s)
        except TimeoutError:
            self._show(self.child.name, f"still running after {self.child.grace_s:g} s: killed")
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
        await self.exited()

    def _take(self, line: str) -> None:
        self.last_line = line.strip(" |+-") or self.last_line  # without the frame that exception groups are drawn in
        if self.child.shown:
            self._show(self.child.name, line)
