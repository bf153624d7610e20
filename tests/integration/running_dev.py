"""`runyard dev` as a person runs it, in a folder with agents."""

import asyncio
import os
import re
import select
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import httpx2
from tests.clients.api import GUARD_S, Api
from tests.integration.processes import eventually
from tests.integration.stack import NOT_INHERITED

ADDER = '''
from runyard import agent, tool

@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b

adder = agent(system="You add.", tools=[add])
'''

FROM_WORKSPACE = (sys.executable, "-m", "runyard.cli")
"""The `runyard` command of the environment that the tests run in."""


class RunningDev:
    """Its output goes to files. `--port 0`: tests of other checkouts may run on this machine."""

    def __init__(
        self, folder: Path, *arguments: str, runyard: Sequence[str | Path] = FROM_WORKSPACE, **environment: str
    ) -> None:
        self.folder = folder
        self.out, self.err = folder / "out.log", folder / "err.log"
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(NOT_INHERITED)}
        command = [*runyard, "dev", *(arguments or ("--port", "0"))]
        with self.out.open("wb") as out, self.err.open("wb") as err:
            self._popen = subprocess.Popen(
                command, cwd=folder, env=inherited | environment, stdin=subprocess.DEVNULL, stdout=out, stderr=err
            )

    @property
    def pid(self) -> int:
        return self._popen.pid

    def descendants(self) -> list[int]:
        """Its children, their children, and so on."""
        children: dict[int, list[int]] = {}
        for stat in Path("/proc").glob("[0-9]*/stat"):
            try:
                # proc(5): "pid (comm) state ppid ..."; comm may hold spaces and parentheses.
                parent = int(stat.read_text().rpartition(")")[2].split()[1])
            except (FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
                continue
            children.setdefault(parent, []).append(int(stat.parent.name))
        found = [*children.get(self.pid, [])]
        for child in found:
            found += children.get(child, [])
        return found

    async def printed(self, pattern: str) -> re.Match[str]:
        """The first place in its output that matches, once there is one."""

        def found() -> re.Match[str] | None:
            ended = self._popen.poll()
            match = re.search(pattern, self.out.read_text(), re.MULTILINE)
            assert match or ended is None, f"it ended with {ended}:\n{self.out.read_text()}{self.err.read_text()}"
            return match

        match: re.Match[str] = await eventually(found, f"{pattern!r} in\n{self.out.read_text()}")
        return match

    async def url(self) -> str:
        return (await self.printed(r"^  Runyard is up at (\S+)$"))[1]

    @asynccontextmanager
    async def api(self) -> AsyncIterator[Api]:
        async with httpx2.AsyncClient(base_url=await self.url(), timeout=GUARD_S, trust_env=False) as http:
            yield Api(http, {})

    def send(self, number: signal.Signals) -> None:
        self._popen.send_signal(number)

    async def exited(self) -> int:
        await eventually(lambda: self._popen.poll() is not None, "end of `runyard dev`")
        return self._popen.returncode

    def kill(self) -> None:
        self._popen.kill()
        self._popen.wait()

    @contextmanager
    def none_left(self) -> Iterator[None]:
        """Every process that it has started when the block begins has ended soon after the block."""
        ends = [os.pidfd_open(pid) for pid in self.descendants()]
        assert len(ends) >= 4, "the group's leader, Valkey, gateway, worker"
        try:
            yield
            for end in ends:
                assert select.select([end], [], [], GUARD_S)[0], "a process was left behind"
        finally:
            for end in ends:
                os.close(end)


@contextmanager
def running_dev(
    folder: Path, *arguments: str, runyard: Sequence[str | Path] = FROM_WORKSPACE, **environment: str
) -> Iterator[RunningDev]:
    dev = RunningDev(folder, *arguments, runyard=runyard, **environment)
    try:
        yield dev
    finally:
        dev.kill()


async def refusal(folder: Path, *arguments: str, **environment: str) -> str:
    """The one line with which it does not start; it leaves nothing running and prints nothing else."""
    with running_dev(folder, *arguments, **environment) as dev:
        async with asyncio.timeout(GUARD_S):
            assert await dev.exited() == 2
        assert dev.out.read_text() == ""
        line = dev.err.read_text()
        assert line.startswith("error: ")
        assert line.count("\n") == 1
        return line
