"""Starts processes and stops them in order: on a signal, when one ends that should stay, or when its own work fails."""

import asyncio
import signal
from collections.abc import Callable, Coroutine
from typing import Any

from runyard.cli.group import ProcessGroup, process_group
from runyard.cli.process import Child, ChildExitedError, Process, Show
from runyard.cli.race import race

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Supervisor:
    def __init__(self, group: ProcessGroup, show: Show) -> None:
        self._group = group
        self._show = show
        self._processes: dict[str, Process] = {}  # in the order of their first start
        self._stopping = asyncio.Event()

    async def start(self, child: Child) -> Process:
        """A child of a name that was started before takes its place in the order."""
        process = await Process.start(child, group=self._group, show=self._show)
        self._processes[child.name] = process
        return process

    async def stop(self) -> None:
        """The last started first: nothing loses what it depends on before its own end."""
        for process in reversed(self._processes.values()):
            await process.stop()

    async def stop_asked(self) -> None:
        await self._stopping.wait()

    def on_signal(self) -> None:
        """The first asks for an orderly stop, the second kills."""
        if self._stopping.is_set():
            self._group.kill()
        else:
            self._show("runyard", "stopping (once more to kill)")
            self._stopping.set()


async def supervise(work: Callable[[Supervisor], Coroutine[Any, Any, None]], *, lock: int, show: Show) -> None:
    """Run `work` until a stop signal; returns when no process is left. `lock`: see `process_group`.

    Raises:
        ChildExitedError: a process ended that should have stayed.
        Exception: whatever else `work` raised.
    """
    async with process_group(holding=lock) as group:
        supervisor = Supervisor(group, show)
        loop = asyncio.get_running_loop()
        for number in STOP_SIGNALS:
            if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:  # nohup's wish is kept
                loop.add_signal_handler(number, supervisor.on_signal)
        try:
            await race(work(supervisor), supervisor.stop_asked(), _leader_stays(group))
        finally:
            await supervisor.stop()


async def _leader_stays(group: ProcessGroup) -> None:
    raise ChildExitedError("process group's leader", await group.leader.wait(), "it was killed")
