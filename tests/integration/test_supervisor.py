"""The supervisor of `runyard dev` with small programs in place of gateway and worker."""

import asyncio
import os
import select
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from runyard.cli.group import ProcessGroup, process_group
from runyard.cli.keeper import EXIT_START_ERROR, Keeper
from runyard.cli.process import Child, ChildExitedError, Process
from runyard.cli.supervisor import Supervisor, supervise

pytestmark = pytest.mark.anyio

LEAVES_ON_SIGTERM = """
import signal
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
print("runs", flush=True)
signal.sigwait({signal.SIGTERM})
print("leaves", flush=True)
"""
DEAF = """
import signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("runs", flush=True)
while True:
    signal.pause()
"""


class Shown:
    """The lines that were shown, and a wait for one."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, str]] = []
        self._more = asyncio.Event()

    def __call__(self, name: str, line: str) -> None:
        self.lines.append((name, line))
        self._more.set()

    async def wait_for(self, name: str, line: str) -> None:
        while (name, line) not in self.lines:
            self._more.clear()
            await self._more.wait()


def python(name: str, program: str, *, grace_s: float = 30, shown: bool = True) -> Child:
    return Child(name=name, command=(sys.executable, "-c", program), grace_s=grace_s, shown=shown)


@pytest.fixture
async def group(tmp_path: Path) -> AsyncIterator[ProcessGroup]:
    with (tmp_path / "lock").open("w") as lock:
        async with process_group(holding=lock.fileno()) as group:
            yield group


@pytest.fixture
def shown() -> Shown:
    return Shown()


async def test_output_is_shown_line_by_line(group: ProcessGroup, shown: Shown) -> None:
    program = r"""
import os, sys
os.write(1, b"one\n\ntwo \xff\r\n")
os.write(2, b"three")
"""
    process = await Process.start(python("gateway", program), group=group, show=shown)
    assert await process.exited() == 0
    assert shown.lines == [("gateway", "one"), ("gateway", ""), ("gateway", "two \ufffd"), ("gateway", "three")]
    assert process.last_line == "three"


async def test_output_without_line_ends_is_shown_in_pieces(group: ProcessGroup, shown: Shown) -> None:
    program = "import os\nfor _ in range(30): os.write(1, b'x' * 100_000)"
    process = await Process.start(python("worker", program), group=group, show=shown)
    await process.exited()
    assert len(shown.lines) > 1
    assert "".join(line for _, line in shown.lines) == "x" * 3_000_000


async def test_a_hidden_child_explains_its_exit_all_the_same(group: ProcessGroup, shown: Shown) -> None:
    process = await Process.start(
        python("valkey", "print('error: no room'); raise SystemExit(3)", shown=False), group=group, show=shown
    )
    with pytest.raises(ChildExitedError, match=r"^the valkey stopped with exit code 3: no room$"):
        await process.must_stay()
    assert shown.lines == []


async def test_waiting_for_a_child_ends_with_it(group: ProcessGroup, shown: Shown) -> None:
    process = await Process.start(python("gateway", "raise SystemExit(4)"), group=group, show=shown)
    with pytest.raises(ChildExitedError, match="exit code 4"):
        await process.until(asyncio.Event().wait())


async def test_a_grandchild_with_the_output_does_not_keep_its_parent_alive(group: ProcessGroup, shown: Shown) -> None:
    program = "import subprocess; subprocess.Popen(['sleep', '1000']); print('done')"
    process = await Process.start(python("worker", program), group=group, show=shown)
    assert await process.exited() == 0
    assert shown.lines == [("worker", "done")]


async def test_a_child_is_killed_when_its_grace_is_over(group: ProcessGroup, shown: Shown) -> None:
    process = await Process.start(python("worker", DEAF, grace_s=0.1), group=group, show=shown)
    await shown.wait_for("worker", "runs")
    await process.stop()
    assert shown.lines[-1] == ("worker", "still running after 0.1 s: killed")
    assert await process.exited() == -signal.SIGKILL


async def test_what_was_started_last_is_stopped_first(group: ProcessGroup, shown: Shown) -> None:
    supervisor = Supervisor(group, shown)
    for name in ("store", "gateway", "worker"):
        await supervisor.start(python(name, LEAVES_ON_SIGTERM))
        await shown.wait_for(name, "runs")
    await supervisor.stop()
    assert shown.lines[3:] == [("worker", "leaves"), ("gateway", "leaves"), ("store", "leaves")]


async def test_a_child_started_anew_keeps_its_place(group: ProcessGroup, shown: Shown) -> None:
    supervisor = Supervisor(group, shown)
    await (await supervisor.start(python("store", ""))).exited()
    for name in ("gateway", "store"):
        await supervisor.start(python(name, LEAVES_ON_SIGTERM))
        await shown.wait_for(name, "runs")
    await supervisor.stop()
    assert shown.lines[2:] == [("gateway", "leaves"), ("store", "leaves")]


async def test_when_work_fails_nothing_is_left(tmp_path: Path, shown: Shown) -> None:
    started: list[Process] = []

    async def work(supervisor: Supervisor) -> None:
        started.append(await supervisor.start(python("store", LEAVES_ON_SIGTERM)))
        await shown.wait_for("store", "runs")
        gateway = await supervisor.start(python("gateway", "print('no room'); raise SystemExit(1)"))
        await gateway.must_stay()

    with (
        (tmp_path / "lock").open("w") as lock,
        pytest.raises(ChildExitedError, match=r"^the gateway stopped with exit code 1: no room$"),
    ):
        await supervise(work, lock=lock.fileno(), show=shown)
    assert await started[0].exited() == 0
    assert ("store", "leaves") in shown.lines


class Worker:
    """Starts a program anew each time; `exits` are the codes with which the first ones end."""

    def __init__(self, group: ProcessGroup, shown: Shown, *exits: int) -> None:
        self.group, self.shown = group, shown
        self.exits = list(exits)
        self.started: list[Process] = []

    async def start(self) -> Process:
        program = f"raise SystemExit({self.exits.pop(0)})" if self.exits else LEAVES_ON_SIGTERM
        process = await Process.start(python("worker", program), group=self.group, show=self.shown)
        self.started.append(process)
        return process


@pytest.fixture
async def keeping(group: ProcessGroup, shown: Shown) -> AsyncIterator[Callable[..., tuple[Worker, Keeper, Any]]]:
    kept: list[tuple[Worker, Keeper, asyncio.Task[None]]] = []

    def keep(*exits: int) -> tuple[Worker, Keeper, asyncio.Task[None]]:
        worker = Worker(group, shown, *exits)
        keeper = Keeper(worker.start, show=shown)
        kept.append((worker, keeper, asyncio.create_task(keeper.keep())))
        return kept[-1]

    yield keep
    for worker, _, task in kept:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await worker.started[-1].stop()


async def test_a_saved_file_replaces_the_worker(keeping: Any, shown: Shown) -> None:
    worker, keeper, _ = keeping()
    await shown.wait_for("worker", "runs")
    shown.lines.clear()
    keeper.saved("researcher.py")
    await shown.wait_for("worker", "runs")
    assert shown.lines == [
        ("runyard", "researcher.py was saved: the worker restarts"),
        ("worker", "leaves"),
        ("worker", "runs"),
    ]
    assert await worker.started[0].exited() == 0


async def test_a_crashed_worker_starts_again(keeping: Any, shown: Shown) -> None:
    keeping(1)
    await shown.wait_for("runyard", "the worker stopped with exit code 1: it starts again in 1 s")
    await shown.wait_for("worker", "runs")


async def test_the_delays_grow_and_a_saved_file_cuts_them_short(keeping: Any, shown: Shown) -> None:
    _, keeper, _ = keeping(1, 1, 1, 1, 1, 1)
    for delay_s in (1, 2, 5, 10, 30, 30):
        await shown.wait_for("runyard", f"the worker stopped with exit code 1: it starts again in {delay_s} s")
        shown.lines.clear()
        keeper.saved("x.py")
    await shown.wait_for("worker", "runs")


async def test_a_worker_that_cannot_start_ends_the_start(keeping: Any) -> None:
    _, _, task = keeping(EXIT_START_ERROR)
    with pytest.raises(ChildExitedError, match="the worker stopped with exit code 2"):
        await task


async def test_later_it_waits_for_a_saved_file(keeping: Any, shown: Shown) -> None:
    _, keeper, _ = keeping(1, EXIT_START_ERROR)
    await shown.wait_for("runyard", "the worker cannot start: it is tried again when a file is saved")
    keeper.saved("x.py")
    await shown.wait_for("worker", "runs")


DEAF_PARENT = """
import os, signal, subprocess
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print(os.getpid(), subprocess.Popen(["sleep", "1000"]).pid, flush=True)
while True:
    signal.pause()
"""
SUPERVISOR = """
import asyncio, sys
from runyard.cli.process import Child
from runyard.cli.supervisor import supervise

async def work(supervisor):
    child = Child(name="worker", command=(sys.executable, "-c", sys.argv[1]), grace_s=600)
    await (await supervisor.start(child)).must_stay()

with open("lock", "w") as lock:
    asyncio.run(supervise(work, lock=lock.fileno(), show=lambda *shown: print(*shown, flush=True)))
"""


@pytest.fixture
def supervised(tmp_path: Path) -> Any:
    """A supervisor with a deaf child and a grandchild, and descriptors that become readable when those end."""
    command = [sys.executable, "-c", SUPERVISOR, DEAF_PARENT]
    supervisor = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True)
    assert supervisor.stdout is not None
    _, *pids = supervisor.stdout.readline().split()
    ends = [os.pidfd_open(int(pid)) for pid in pids]
    yield supervisor, ends
    supervisor.kill()
    supervisor.communicate()
    for end in ends:
        os.close(end)


def wait_for_ends(ends: list[int]) -> None:
    for end in ends:
        assert select.select([end], [], [], 30)[0]


def test_sigkill_leaves_neither_child_nor_grandchild(supervised: Any) -> None:
    supervisor, ends = supervised
    assert select.select(ends, [], [], 0)[0] == []
    supervisor.kill()
    wait_for_ends(ends)


def test_a_second_signal_kills(supervised: Any) -> None:
    supervisor, ends = supervised
    supervisor.send_signal(signal.SIGINT)
    assert supervisor.stdout.readline() == "runyard stopping (once more to kill)\n"
    assert select.select(ends, [], [], 0)[0] == []
    supervisor.send_signal(signal.SIGINT)
    wait_for_ends(ends)
    assert supervisor.wait() == 0
