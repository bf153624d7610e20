"""Runs per second from POST to the terminal frame, and what each costs; one step of 20 deltas."""

import asyncio
import time
from dataclasses import dataclass

from benchmarks.floors.model_calls import Calls, ModelCaller
from benchmarks.report import Figure, Floor, Section, Target
from benchmarks.samples import median
from benchmarks.stacks import postgres_redis
from benchmarks.system import System, run, running
from benchmarks.targets import CPU_PER_RUN, RUNS_PER_S
from benchmarks.wire import Connection

DIRECTIVE = "standin[deltas=20]"
IN_FLIGHT = (1, 16, 64)
CPU_AT = 16
WORKERS = (1, 2, 4)
CROWD = 64
RUNS, RUNS_QUICK = 200, 80
ROUNDS, ROUNDS_QUICK = 5, 2


@dataclass(frozen=True, kw_only=True)
class Batch:
    runs_per_s: float
    gateway_ms: float
    worker_ms: float
    """CPU for each run."""

    @property
    def cpu_ms(self) -> float:
        return self.gateway_ms + self.worker_ms


async def measure(*, quick: bool) -> Section:
    runs, rounds = (RUNS_QUICK, ROUNDS_QUICK) if quick else (RUNS, ROUNDS)
    figures: list[Figure] = []
    with postgres_redis() as stack:
        async with running(stack) as system:
            for in_flight in IN_FLIGHT:
                count = runs if in_flight > 1 else runs // 4
                targets = RUNS_PER_S if in_flight > 1 else ()
                figures += await _figures(
                    system, f"{in_flight} in flight", in_flight, runs=count, rounds=rounds, targets=targets
                )
    return Section(
        name="throughput",
        title="Runs end to end, one gateway and one worker process, Postgres + Redis",
        figures=figures,
    )


async def measure_workers(*, quick: bool) -> Section:
    runs, rounds = (RUNS_QUICK, ROUNDS_QUICK) if quick else (RUNS, ROUNDS)
    figures: list[Figure] = []
    for workers in WORKERS:
        with postgres_redis() as stack:
            async with running(stack, workers=workers) as system:
                figures += await _figures(system, f"{workers} worker processes", CROWD, runs=runs, rounds=rounds)
    return Section(
        name="workers",
        title=f"Runs end to end at {CROWD} in flight by worker processes (all on this machine's cores)",
        figures=figures,
    )


async def _figures(
    system: System, name: str, in_flight: int, *, runs: int, rounds: int, targets: tuple[Target, ...] = ()
) -> list[Figure]:
    callers = [await system.caller() for _ in range(in_flight)]
    model = ModelCaller(system.standin_url)
    batches: list[Batch] = []
    floors: list[Calls] = []
    for _ in range(rounds):
        floors.append(await model.many(DIRECTIVE, count=runs, in_flight=in_flight))
        batches.append(await _batch(system, callers, runs))
    await model.close()
    for caller in callers:
        caller.close()
    gateway_ms = median([batch.gateway_ms for batch in batches])
    worker_ms = median([batch.worker_ms for batch in batches])
    return [
        Figure(
            name=f"{name}: runs per second",
            value=median([batch.runs_per_s for batch in batches]),
            unit="/s",
            floor=Floor(what="httpx2 reading the stand-in", value=median([floor.calls_per_s for floor in floors])),
            targets=targets,
        ),
        Figure(
            name=f"{name}: CPU per run, gateway + worker",
            value=median([batch.cpu_ms for batch in batches]),
            unit="ms",
            floor=Floor(what="httpx2 reading the stand-in", value=1000 * median([floor.cpu_s for floor in floors])),
            targets=CPU_PER_RUN if in_flight == CPU_AT else (),
            note=f"gateway {gateway_ms:.1f}, worker {worker_ms:.1f}",
        ),
    ]


async def _batch(system: System, callers: list[Connection], runs: int) -> Batch:
    left = iter(range(runs))
    before, began_s = system.cpu_s(), time.perf_counter()

    async def run_after_run(caller: Connection) -> None:
        for _ in left:
            await run(caller, DIRECTIVE)

    await asyncio.gather(*(run_after_run(caller) for caller in callers))
    wall_s, after = time.perf_counter() - began_s, system.cpu_s()
    return Batch(
        runs_per_s=runs / wall_s,
        gateway_ms=1000 * (after[0] - before[0]) / runs,
        worker_ms=1000 * (after[1] - before[1]) / runs,
    )
