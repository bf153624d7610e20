"""One process of the system: started as in production, its log in a file, its CPU read from the kernel."""

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import orjson

WORKSPACE = Path(__file__).resolve().parents[1]
START_S = 60.0
STOP_S = 15.0
POLL_S = 0.02
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


class Process:
    def __init__(self, process: asyncio.subprocess.Process, log: Path) -> None:
        self._process = process
        self._log = log

    @property
    def pid(self) -> int:
        return self._process.pid

    def cpu_s(self) -> float:
        """User and system time of all its threads so far, in steps of 10 ms (proc(5), /proc/[pid]/stat)."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS_PER_S

    async def logged(self, event: str) -> dict[str, Any]:
        """The first event of that name in its log.

        Raises:
            RuntimeError: the process ended without it, or took too long.
        """
        give_up_s = asyncio.get_running_loop().time() + START_S
        while asyncio.get_running_loop().time() < give_up_s:
            for line in self._log.read_bytes().splitlines():
                with contextlib.suppress(orjson.JSONDecodeError):
                    found: dict[str, Any] = orjson.loads(line)
                    if found.get("event") == event:
                        return found
            if self._process.returncode is not None:
                break
            await asyncio.sleep(POLL_S)
        raise RuntimeError(f"no {event!r} in the log of process {self.pid}:\n{self._log.read_text()}")

    def send(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    async def kill(self) -> None:
        self._process.kill()
        await self._process.wait()

    async def stop(self) -> None:
        """SIGTERM, and SIGKILL when that does not end it."""
        if self._process.returncode is not None:
            return
        self._process.terminate()
        try:
            async with asyncio.timeout(STOP_S):
                await self._process.wait()
        except TimeoutError:
            await self.kill()


@contextlib.asynccontextmanager
async def started(module: str, environment: Mapping[str, str], log: Path) -> AsyncIterator[Process]:
    """`python -m module` for as long as the block runs."""
    with log.open("wb") as output:
        child = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", module),
            cwd=WORKSPACE,
            env=dict(environment),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
    process = Process(child, log)
    try:
        yield process
    finally:
        await process.stop()
