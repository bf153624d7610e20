"""A worker is killed in the middle of an answer: how long its reader waits for the next frame."""

import asyncio
import time

import psycopg

from benchmarks.processes import Process
from benchmarks.report import Figure, Section
from benchmarks.samples import median
from benchmarks.stacks import postgres_redis
from benchmarks.system import AGENT, STREAM, System, running
from benchmarks.targets import RECOVERY

DIRECTIVE = "standin[deltas=1000,delay_ms=20]"
SEEN_FRAMES = 20
KILLS, KILLS_QUICK = 3, 1
GUARD_S = 60.0


async def measure(*, quick: bool) -> Section:
    waits_s = [await _kill_once() for _ in range(KILLS_QUICK if quick else KILLS)]
    return Section(
        name="recovery",
        title="kill -9 of the worker to the reader's next frame; a second worker lives; Postgres + Redis",
        figures=[
            Figure(name="p50", value=median(waits_s), unit="s", targets=RECOVERY),
            Figure(name="longest", value=max(waits_s), unit="s", targets=RECOVERY),
        ],
    )


async def _kill_once() -> float:
    with postgres_redis() as stack:
        async with running(stack, workers=2) as system:
            frames = 0
            came = asyncio.Event()

            def count(piece: bytes) -> None:
                nonlocal frames
                frames += piece.count(b"id: ")
                came.set()

            caller = await system.caller()
            reading = asyncio.create_task(
                caller.follow(f"/v1/agents/{AGENT}/runs", {"input": DIRECTIVE}, count, headers=STREAM)
            )
            async with asyncio.timeout(GUARD_S):
                while frames < SEEN_FRAMES:
                    await came.wait()
                    came.clear()
                await _executing(system).kill()
                killed_s, seen = time.perf_counter(), frames
                while frames == seen or time.perf_counter() - killed_s < 1:  # what was on its way still comes
                    await came.wait()
                    came.clear()
                    if time.perf_counter() - killed_s < 1:
                        seen = frames
            waited_s = time.perf_counter() - killed_s
            reading.cancel()
            return waited_s


def _executing(system: System) -> Process:
    """The worker that has the one run."""
    with psycopg.connect(system.stack.database_url) as database:
        row = database.execute("SELECT host FROM workers JOIN agent_runs ON worker_id = workers.id").fetchone()
    assert row is not None
    pid = int(row[0].rpartition(":")[2])
    return next(worker for worker in system.workers if worker.pid == pid)
