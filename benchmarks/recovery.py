"""A worker is killed in the middle of an answer: how long its reader waits for the next frame."""

import time

from benchmarks.reading import reading
from benchmarks.report import Figure, Section
from benchmarks.rows import executing
from benchmarks.samples import median
from benchmarks.stacks import postgres_redis
from benchmarks.system import running
from benchmarks.targets import RECOVERY

DIRECTIVE = "standin[deltas=1000,delay_ms=20]"
SEEN_FRAMES = 20
ON_ITS_WAY_S = 1.0
"""What the worker had sent still comes in this time."""

KILLS, KILLS_QUICK = 3, 1


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
        async with running(stack, workers=2) as system, reading(system, DIRECTIVE) as reader:
            await reader.until(lambda: len(reader.came_s) >= SEEN_FRAMES)
            await executing(system).kill()
            killed_s = time.perf_counter()
            await reader.until(lambda: reader.came_s[-1] > killed_s + ON_ITS_WAY_S)
            return next(came_s for came_s in reader.came_s if came_s > killed_s + ON_ITS_WAY_S) - killed_s
