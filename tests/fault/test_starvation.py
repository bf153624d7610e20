"""Workers that hardly get the processor are slow, not dead."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from tests.fault.conftest import on_redis
from tests.fault.crew import Crew, lives
from tests.integration.processes import Process, eventually
from tests.integration.stack import Stack
from tests.standin import calls, says

pytestmark = [pytest.mark.anyio, on_redis]

WORKERS = 3
SPINNING = 4
"""Tools a worker that burn the processor in threads beside its beat's, under the same interpreter lock."""

BEATS = 6
"""So many take longer than what makes a worker dead."""


async def test_nobody_is_taken_for_dead_for_want_of_the_processor(stack: Stack, crew: Crew, unique: str) -> None:
    stack.standin.answers(calls("spin", {"gate": unique}), says("Dizzy."), by="turn", contains="<spin>")
    stack.standin.answers(says("Short."), by="turn", contains="<short>")
    api = stack.gateway.user()
    workers = await crew.join(WORKERS, RUNYARD_WORKER_SLOTS=str(SPINNING + 1))
    with sharing_one_processor(workers):
        spinning = [await api.start("mortal", f"<spin> {number}") for number in range(WORKERS * SPINNING)]
        await stack.gate_reached(unique)
        before = beats(stack, workers)
        await eventually(
            lambda: all(now >= before[worker] + BEATS for worker, now in beats(stack, workers).items()), "beats"
        )
        stack.open_gate(unique)
        await asyncio.gather(*(api.settled(run["invocationId"]) for run in spinning))
    assert (await api.run("talker", "<short>"))["text"] == "Short."
    assert crew.burials() == []


def beats(stack: Stack, workers: Sequence[Process]) -> dict[str, int]:
    rows = dict(stack.execute("SELECT id, beat FROM workers"))
    return {worker_id: rows[worker_id] for worker in workers for worker_id in lives(worker)}


@contextmanager
def sharing_one_processor(processes: Sequence[Process]) -> Iterator[None]:
    """With each other and with two processes that never rest."""
    allowed = os.sched_getaffinity(0)
    one = {min(allowed)}
    idlers = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2)]
    try:
        for pid in [*(process.pid for process in processes), *(idler.pid for idler in idlers)]:
            _pin(pid, one)
        yield
    finally:
        for idler in idlers:
            idler.kill()
            idler.wait()
        for process in processes:
            _pin(process.pid, allowed)


def _pin(pid: int, processors: set[int]) -> None:
    """Affinity is each thread's own; new ones have it from who started them."""
    for thread in Path(f"/proc/{pid}/task").iterdir():
        with suppress(ProcessLookupError):  # it has ended since
            os.sched_setaffinity(int(thread.name), processors)
