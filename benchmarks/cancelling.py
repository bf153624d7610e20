"""A person cancels a run in the middle of an answer: how long until it is settled, with Redis and without.

From the call's first byte to the run's `settled_at`, which the worker takes from the same machine's clock.
"""

import asyncio
import random
import time

import psycopg

from benchmarks.report import Figure, Section, Target
from benchmarks.rows import until_all
from benchmarks.samples import median, percentile
from benchmarks.stacks import postgres_rabbitmq, postgres_redis, private_redis
from benchmarks.system import AGENT, System, running
from benchmarks.targets import CANCEL, CANCEL_WITHOUT_REDIS
from benchmarks.wire import RUNYARD_TEXT

DIRECTIVE = "standin[deltas=10000,delay_ms=100]"
RUNS, RUNS_QUICK = 30, 10
ROUNDS, ROUNDS_QUICK = 4, 2
SPREAD_S = 2.0
"""The cancels of one round come within so long, at any moment between two polls of the worker."""


async def measure(*, quick: bool) -> Section:
    runs, rounds = (RUNS_QUICK, ROUNDS_QUICK) if quick else (RUNS, ROUNDS)
    with postgres_redis() as stack:
        async with running(stack) as system:
            hearing = [each for _ in range(rounds) for each in await _cancel_all(system, await _begin(system, runs))]
    deaf = [each for _ in range(rounds) for each in await _without_redis(runs)]
    return Section(
        name="cancel",
        title=f"Cancel to settled, {runs} runs at once in the middle of an answer",
        figures=[
            *_figures("Postgres + Redis", hearing, CANCEL),
            *_figures("Postgres + RabbitMQ, Redis away", deaf, CANCEL_WITHOUT_REDIS),
        ],
    )


def _figures(name: str, took_ms: list[float], targets: tuple[Target, ...]) -> list[Figure]:
    return [
        Figure(name=f"{name}, p50", value=median(took_ms), unit="ms"),
        Figure(name=f"{name}, p95", value=percentile(took_ms, 95), unit="ms", targets=targets),
    ]


async def _without_redis(runs: int) -> list[float]:
    """Redis is there until the runs are at work."""
    with postgres_rabbitmq() as shared, private_redis(shared) as (stack, redis):
        async with running(stack) as system:
            begun = await _begin(system, runs)
            redis.stop()
            return await _cancel_all(system, begun)


async def _begin(system: System, count: int) -> list[str]:
    """Runs whose model is speaking."""
    caller = await system.caller()
    answers = [
        await caller.post(f"/v1/agents/{AGENT}/runs", {"input": DIRECTIVE}, text=RUNYARD_TEXT) for _ in range(count)
    ]
    caller.close()
    assert {answer.status for answer in answers} == {202}
    runs = [answer.headers["x-run-id"] for answer in answers]
    await until_all(system.stack, runs, status="running")
    return runs


async def _cancel_all(system: System, runs: list[str]) -> list[float]:
    """How long each took, in milliseconds."""
    sent_ms: dict[str, float] = {}

    async def cancel(run_id: str) -> None:
        caller = await system.caller()
        await asyncio.sleep(random.uniform(0, SPREAD_S))
        sent_ms[run_id] = 1000 * time.time()
        answer = await caller.post(f"/v1/runs/{run_id}/cancel", {}, text=RUNYARD_TEXT)
        assert answer.status in (200, 202), answer
        caller.close()

    await asyncio.gather(*map(cancel, runs))
    await until_all(system.stack, runs, status="cancelled")
    with psycopg.connect(system.stack.database_url) as database:
        rows = database.execute("SELECT run_id, settled_at FROM agent_invocations WHERE run_id = ANY(%s)", [runs])
        return [settled_ms - sent_ms[run_id] for run_id, settled_ms in rows]
