"""One child process of `runyard dev`: started into the group, its output passed on, stopped within its grace."""

import asyncio
import contextlib
import os
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, NoReturn, Self, TypeVar

from runyard.cli.group import ProcessGroup
from runyard.cli.race import race

T = TypeVar("T")
Show = Callable[[str, str], None]
"""Shows a line of a process: `show("gateway", "listening")`."""

LINE_LIMIT_BYTES = 1_048_576  # a longer line is shown in pieces: output without line ends takes no memory
OUTPUT_END_S = 1.0  # a grandchild that lives on holds the output open; the supervisor does not wait for it


@dataclass(frozen=True, kw_only=True)
class Child:
    """What to start. `shown`: each line of output appears; otherwise the last alone is kept, to explain an exit."""

    name: str
    command: tuple[str, ...]
    grace_s: float
    shown: bool = True


class ChildExitedError(Exception):
    """A child ended that should have stayed."""

    def __init__(self, name: str, code: int, last_line: str) -> None:
        reason = last_line.removeprefix("error: ") or "it said nothing"
        super().__init__(f"the {name} stopped with exit code {code}: {reason}")


class Process:
    """A running child. Its environment and working directory are the supervisor's own."""

    def __init__(
        self, child: Child, process: asyncio.subprocess.Process, output: asyncio.StreamReader, show: Show
    ) -> None:
        self.child = child
        self.last_line = ""
        self._process = process
        self._show = show
        self._output = asyncio.create_task(self._pass_on(output))

    @classmethod
    async def start(cls, child: Child, *, group: ProcessGroup, show: Show) -> Self:
        # A pipe of our own: with asyncio's pipes, Python 3.11 counts a process as running for as long as any grandchild
        # holds one of them open.
        read_end, write_end = os.pipe()
        output = asyncio.StreamReader()
        await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(output), os.fdopen(read_end, "rb", buffering=0)
        )
        try:
            process = await asyncio.create_subprocess_exec(
                *child.command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=write_end,
                stderr=write_end,
                process_group=group.id,
            )
        finally:
            os.close(write_end)
        return cls(child, process, output, show)

    @property
    def pid(self) -> int:
        return self._process.pid

    async def exited(self) -> int:
        """The exit code, once the process has ended and its output is passed on."""
        code = await self._process.wait()
        await asyncio.wait({self._output}, timeout=OUTPUT_END_S)
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

    async def _pass_on(self, output: asyncio.StreamReader) -> None:
        rest = b""
        while piece := await output.read(65_536):
            *lines, rest = (rest + piece).split(b"\n")
            if len(rest) > LINE_LIMIT_BYTES:
                lines.append(rest)
                rest = b""
            for line in lines:
                self._pass_on_line(line)
        if rest:
            self._pass_on_line(rest)

    def _pass_on_line(self, line: bytes) -> None:
        text = line.decode(errors="replace").rstrip("\r")
        if text.strip():
            self.last_line = text.strip()
        if self.child.shown:
            self._show(self.child.name, text)
