"""A worker is told to leave: how long its reader waits between the last frame before and the first one after."""

import itertools
import signal
import time
from collections.abc import Sequence

from benchmarks.reading import reading
from benchmarks.report import Figure, Floor, Section
from benchmarks.rows import executing
from benchmarks.samples import median
from benchmarks.stacks import postgres_redis
from benchmarks.system import running

STEP_MS = 100
BETWEEN_STEPS = f"standin[steps=200,first_ms={STEP_MS},delay_ms={STEP_MS}]"
IN_AN_ANSWER = "standin[deltas=2000,delay_ms=20]"
SEEN_FRAMES = 20
AFTER_S = 3.0
"""The hand-over is over long before."""

TIMES, TIMES_QUICK = 5, 2


async def measure(*, quick: bool) -> Section:
    times = TIMES_QUICK if quick else TIMES
    steps = [await _pause(BETWEEN_STEPS, agent="clerk", drain_s=25) for _ in range(times)]
    answers = [await _pause(IN_AN_ANSWER, agent="writer", drain_s=0) for _ in range(times)]
    return Section(
        name="hand-over",
        title="SIGTERM of the worker: the reader's longest wait for a frame; a second worker serves; Postgres + Redis",
        figures=[
            *_figures("between two steps", steps),
            *_figures("an answer is cut and begun anew", answers),
        ],
    )


def _figures(name: str, pauses: Sequence[tuple[float, float]]) -> list[Figure]:
    before_ms = 1000 * median([before_s for before_s, _ in pauses])
    waits_ms = [1000 * after_s for _, after_s in pauses]
    return [
        Figure(
            name=f"{name}, p50",
            value=median(waits_ms),
            unit="ms",
            floor=Floor(what="the longest wait before it", value=before_ms),
        ),
        Figure(name=f"{name}, longest", value=max(waits_ms), unit="ms"),
    ]


async def _pause(directive: str, *, agent: str, drain_s: float) -> tuple[float, float]:
    """The longest wait for a frame before the signal, and behind it."""
    with postgres_redis() as stack:
        settings = {"RUNYARD_DRAIN_S": str(drain_s)}
        async with (
            running(stack, workers=2, settings=settings) as system,
            reading(system, directive, agent=agent) as reader,
        ):
            await reader.until(lambda: len(reader.came_s) >= SEEN_FRAMES)
            last, told_s = len(reader.came_s) - 1, time.perf_counter()
            executing(system).send(signal.SIGTERM)
            await reader.until(lambda: reader.came_s[-1] > told_s + AFTER_S)
            return _longest_wait(reader.came_s[: last + 1]), _longest_wait(reader.came_s[last:])


def _longest_wait(came_s: Sequence[float]) -> float:
    return max(later - earlier for earlier, later in itertools.pairwise(came_s))
