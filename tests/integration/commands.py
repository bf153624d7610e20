"""The `runyard` command as a person runs it: in a pipe, or at a terminal."""

import asyncio
import os
import pty
import re
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import anyio
import pytest

from runyard.cli import main

GUARD_S = 30.0
RUNYARD = (sys.executable, "-m", "runyard.cli")

AT_TERMINAL = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.argv[1], sys.argv[1:])
"""
"""What makes the terminal on stdin the one that Ctrl-C of a new session comes from."""

CTRL_C = "\x03"


@dataclass(frozen=True, kw_only=True)
class Done:
    code: int | None
    out: str
    err: str


@dataclass(frozen=True, kw_only=True)
class Here:
    """In this process, which takes a tenth of the time: for commands that read no stream."""

    environment: Mapping[str, str]
    capture: pytest.CaptureFixture[str]

    async def __call__(self, *arguments: str, **environment: str) -> Done:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sys, "argv", ["runyard", *arguments])
            for name, value in {**self.environment, **environment}.items():
                patch.setenv(name, value)
            self.capture.readouterr()
            code = await anyio.to_thread.run_sync(self._code)
        printed = self.capture.readouterr()
        return Done(code=code, out=printed.out, err=printed.err)

    def _code(self) -> int:
        try:
            main()
        except SystemExit as ended:
            return int(ended.code or 0)
        return 0


@dataclass(frozen=True, kw_only=True)
class Command:
    environment: Mapping[str, str]
    folder: Path

    async def __call__(self, *arguments: str, stdin: str = "", **environment: str) -> Done:
        """Run it in a pipe."""
        process = await asyncio.create_subprocess_exec(
            *RUNYARD,
            *arguments,
            cwd=self.folder,
            env={**self.environment, **environment},
            stdin=PIPE,
            stdout=PIPE,
            stderr=PIPE,
            start_new_session=True,  # whoever runs the tests has a terminal, and is not to be asked
        )
        async with asyncio.timeout(GUARD_S):
            out, err = await process.communicate(stdin.encode())
        return Done(code=process.returncode, out=out.decode(), err=err.decode())

    @asynccontextmanager
    async def at_terminal(self, *arguments: str) -> AsyncIterator["Terminal"]:
        """Run it at a terminal of its own; killed at the block's end, if it is still there."""
        ours, its = pty.openpty()
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", AT_TERMINAL, *RUNYARD, *arguments),
            cwd=self.folder,
            env={**self.environment, "TERM": "xterm", "COLUMNS": "100"},
            stdin=its,
            stdout=its,
            stderr=its,
            start_new_session=True,
        )
        os.close(its)
        terminal = Terminal(descriptor=ours, process=process)
        asyncio.get_running_loop().add_reader(ours, terminal.read)
        try:
            yield terminal
        finally:
            asyncio.get_running_loop().remove_reader(ours)
            os.close(ours)
            if process.returncode is None:
                process.kill()
            await process.wait()


@dataclass(kw_only=True)
class Terminal:
    descriptor: int
    process: asyncio.subprocess.Process
    shown: str = ""
    """All that it has shown, with LF at the ends of lines."""
    _more: asyncio.Event = field(default_factory=asyncio.Event)

    def read(self) -> None:
        try:
            self.shown += os.read(self.descriptor, 65_536).decode(errors="replace").replace("\r", "")
        except OSError:  # the command has ended, and the terminal with it
            asyncio.get_running_loop().remove_reader(self.descriptor)
        self._more.set()

    def type(self, text: str) -> None:
        os.write(self.descriptor, text.encode())

    async def shows(self, pattern: str) -> None:
        """Once it has."""
        async with asyncio.timeout(GUARD_S):
            while re.search(pattern, self.shown) is None:
                self._more.clear()
                await self._more.wait()

    async def exited(self) -> int:
        async with asyncio.timeout(GUARD_S):
            return await self.process.wait()
