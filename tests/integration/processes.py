"""The system's processes: settings from the environment, one log a process."""

import asyncio
import json
import os
import signal
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tests.integration.fork_server import start_module

GUARD_S = 60.0
"""A start imports for seconds on a loaded machine; only a fault takes this long."""

POLL_S = 0.02
COMPLAINTS = (None, "error", "critical")
WORKSPACE = Path(__file__).resolve().parents[2]


async def eventually(found: Callable[[], Any], what: str, *, guard_s: float = GUARD_S) -> Any:
    """Look again and again until there is something to be found, and return it.

    For what can only be looked at: a file, a process's end, a row.

    Raises:
        TimeoutError: `what` was not found.
    """
    try:
        async with asyncio.timeout(guard_s):
            while not (value := found()):  # noqa: ASYNC110 - what happens outside of this process sets no event
                await asyncio.sleep(POLL_S)
    except TimeoutError:
        raise TimeoutError(f"after {guard_s:g} s: no {what}") from None
    return value


class Process(ABC):
    """One process; its log, JSON lines on stderr, goes to a file."""

    def __init__(self, log: Path) -> None:
        self.log = log
        log.touch()

    @property
    @abstractmethod
    def pid(self) -> int: ...

    @property
    @abstractmethod
    def exit_code(self) -> int | None:
        """None while it runs; the signal's number, negative, where one killed it."""

    @abstractmethod
    def kill(self) -> None:
        """At once, if it still runs; return when it is gone."""

    def events(self, name: str | None = None) -> list[dict[str, Any]]:
        """The log so far, or its events of one name."""
        lines = [line for line in self.log.read_text().splitlines(keepends=True) if line.endswith("\n")]
        events = [_event(line) for line in lines]
        return [event for event in events if name is None or event["event"] == name]

    async def logged(self, name: str) -> dict[str, Any]:
        """The first event of that name, once it is there.

        Raises:
            AssertionError: the process ended without it.
        """

        def found() -> dict[str, Any] | None:
            ended = self.exit_code
            events = self.events(name)
            assert events or ended is None, f"the process ended with {ended}:\n{self.log.read_text()}"
            return events[0] if events else None

        event: dict[str, Any] = await eventually(found, f"event {name!r} in {self.log.name}")
        return event

    def complaints(self) -> list[dict[str, Any]]:
        """What no log of a healthy process holds: errors, and lines of whoever writes past the log."""
        return [event for event in self.events() if event.get("level") in COMPLAINTS]

    def send(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    async def exited(self) -> int:
        """Its exit code, once it has ended by itself."""
        await eventually(lambda: self.exit_code is not None, f"end of the process that logs to {self.log.name}")
        assert self.exit_code is not None
        return self.exit_code

    async def stop(self) -> int:
        """Ask it to leave and wait for that; kill it if it does not."""
        if self.exit_code is None:
            self.send(signal.SIGTERM)
        try:
            return await self.exited()
        finally:
            self.kill()


class BornProcess(Process):
    """Of this environment's interpreter, in the workspace."""

    def __init__(self, module: str, *, environment: Mapping[str, str], log: Path) -> None:
        super().__init__(log)
        self._child = start_module(module, environment, log)
        assert self._child.pid is not None
        self._pid = self._child.pid

    @property
    def pid(self) -> int:
        return self._pid

    @property
    def exit_code(self) -> int | None:
        return self._child.exitcode

    def kill(self) -> None:
        self._child.kill()
        self._child.join()


class InstalledProcess(Process):
    """Of an environment of its own, in a folder of its own: what was installed there, and nothing of the workspace."""

    def __init__(self, module: str, *, environment: Mapping[str, str], log: Path, python: Path, folder: Path) -> None:
        super().__init__(log)
        with log.open("wb") as output:
            self._popen = subprocess.Popen(
                [python, "-m", module],
                cwd=folder,
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )

    @property
    def pid(self) -> int:
        return self._popen.pid

    @property
    def exit_code(self) -> int | None:
        return self._popen.poll()

    def kill(self) -> None:
        self._popen.kill()
        self._popen.wait()


def _event(line: str) -> dict[str, Any]:
    """What is no JSON (a library's warning, an interpreter's last words) counts as an event without fields."""
    try:
        event = json.loads(line)
    except ValueError:
        return {"event": line.rstrip()}
    return event if isinstance(event, dict) and "event" in event else {"event": line.rstrip()}
