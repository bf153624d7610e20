"""The cost of a claim by what is queued: few runs or a hundred thousand, of one tenant or many, behind a full limit.

Claims of one process on Postgres, one after the other, with nothing else at work, beside 50,000 runs of before. A
claimed run ends at once: as much is queued, and as little runs, at the last claim as at the first.
"""

import contextlib
import time
from collections.abc import AsyncIterator

import psycopg
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from benchmarks.report import Figure, Floor, Section, Target
from benchmarks.samples import median
from benchmarks.stacks import postgres_redis
from benchmarks.targets import CLAIM_BACKLOG
from runyard.clock import now_ms
from runyard.db.claiming import claim_best
from runyard.db.engine import Database
from runyard.db.limits import NO_LIMITS, Limits
from runyard.db.migrate import upgrade
from runyard.ids import WorkerId

FEW, MANY = 100, 100_000
TENANTS = 1_000
CLAIMS, CLAIMS_QUICK = 80, 40  # with those that warm up fewer than the fewest that are queued
WARM = 10
WORKER = WorkerId("wk_bench")
ONE_EACH = Limits(per_user=1)

_RUNS = """
INSERT INTO agent_runs (id, tenant_id, user_id, agent, queue, metadata, status, generation, rank, invocation_id,
    cancel_requested, steps, last_seq, usage, cost, created_at, last_activity_at)
SELECT 'run_' || n, 'tenant-' || n %% %(tenants)s, CASE WHEN n < %(of_one_user)s THEN 'busy' ELSE 'user-' || n END,
    'bench', 'default', '{}', 'queued', 0, n, 'inv_' || n, false, 0, 0, '{}', '{}', n, n
FROM generate_series(0, %(runs)s - 1) AS n
"""
_HISTORY = """
INSERT INTO agent_runs (id, tenant_id, user_id, agent, queue, metadata, status, generation, rank, cancel_requested,
    steps, last_seq, usage, cost, created_at, last_activity_at)
SELECT 'old_' || n, 'tenant-' || n % 1000, 'user-' || n, 'bench', 'default', '{}', 'completed', 0, n, false, 0, 0, '{}',
    '{}', n, n
FROM generate_series(1, 50000) AS n
"""
_INVOCATIONS = """
INSERT INTO agent_invocations (id, run_id, stream_id, request_id, status, roles, options, steps, usage, cost, deaths,
    stream_closed, created_at)
SELECT 'inv_' || n, 'run_' || n, 'st_' || n, 'req', 'queued', '[]', '{}', 0, '{}', '{}', '[]', false, n
FROM generate_series(0, %(runs)s - 1) AS n
"""
_INPUTS = """
INSERT INTO agent_inputs (id, run_id, invocation_id, position, opens, content, created_at)
SELECT 'in_' || n, 'run_' || n, 'inv_' || n, 1, true, '"Hello"', n FROM generate_series(0, %(runs)s - 1) AS n
"""
_WORKER = """
INSERT INTO workers (id, beat, host, slots, queues, agents, started_at) VALUES (%s, 0, '', 1, '[]', '{}', 0)
"""
_RUNS_ON = "UPDATE agent_runs SET status = 'running', worker_id = %s WHERE id = 'run_0'"
_ends = sa.text("UPDATE agent_runs SET status = 'completed', worker_id = NULL WHERE id = :run")


async def measure(*, quick: bool) -> Section:
    claims = CLAIMS_QUICK if quick else CLAIMS
    async with queued(FEW) as few, queued(MANY) as many:
        few_ms, many_ms = await _claim_ms(few, claims), await _claim_ms(many, claims)
    async with queued(TENANTS, tenants=TENANTS) as one_each, queued(MANY, tenants=TENANTS) as hundred_each:
        one_each_ms, hundred_each_ms = await _claim_ms(one_each, claims), await _claim_ms(hundred_each, claims)
    async with queued(FEW + claims, of_one_user=FEW) as few, queued(MANY + claims, of_one_user=MANY) as many:
        few_behind_ms = await _claim_ms(few, claims - WARM, ONE_EACH)
        many_behind_ms = await _claim_ms(many, claims - WARM, ONE_EACH)
    return Section(
        name="claims",
        title="A claim by what is queued, one after the other, Postgres",
        figures=[
            _figure(f"{MANY:,} runs of one tenant", many_ms, f"{FEW} runs", few_ms, CLAIM_BACKLOG),
            _figure(
                f"{MANY:,} runs of {TENANTS:,} tenants",
                hundred_each_ms,
                f"{TENANTS:,} runs of {TENANTS:,} tenants",
                one_each_ms,
                CLAIM_BACKLOG,
            ),
            _figure(f"{TENANTS:,} tenants, a run each", one_each_ms, f"{FEW} runs of one tenant", few_ms, ()),
            _figure(
                f"behind {MANY:,} runs of a user at the limit",
                many_behind_ms,
                f"behind {FEW} such runs",
                few_behind_ms,
                CLAIM_BACKLOG,
            ),
        ],
    )


def _figure(name: str, value: float, floor: str, floor_value: float, targets: tuple[Target, ...]) -> Figure:
    return Figure(name=name, value=value, unit="ms, p50", floor=Floor(what=floor, value=floor_value), targets=targets)


@contextlib.asynccontextmanager
async def queued(runs: int, *, tenants: int = 1, of_one_user: int = 0) -> AsyncIterator[Database]:
    """A database with so many queued runs. Those of the one user come first, and one of them runs."""
    with postgres_redis() as stack:
        upgrade(stack.database_url)
        with psycopg.connect(stack.database_url, autocommit=True) as connection:
            parameters = {"runs": runs, "tenants": tenants, "of_one_user": of_one_user}
            connection.execute(_HISTORY)
            for statement in (_RUNS, _INVOCATIONS, _INPUTS):
                connection.execute(statement, parameters)
            connection.execute(_WORKER, [WORKER])
            if of_one_user:
                connection.execute(_RUNS_ON, [WORKER])
            connection.execute("VACUUM ANALYZE")  # as autovacuum has done where as much has been queued for a while
        database = Database(stack.database_url, pool_size=1)
        try:
            yield database
        finally:
            await database.close()


async def _claim_ms(database: Database, claims: int, limits: Limits = NO_LIMITS) -> float:
    samples = []
    for _ in range(WARM + claims):
        began_s = time.perf_counter()
        claim = await claim_best(
            database,
            worker_id=WORKER,
            queues=["default"],
            agents={"bench": "v1"},
            redis_run_id="redis",
            at=now_ms(),
            limits=limits,
        )
        samples.append(1000 * (time.perf_counter() - began_s))
        if claim is None:
            raise RuntimeError("nothing is queued any more")
        await database.write(_end, claim.run.id)
    return median(samples[WARM:])


async def _end(connection: AsyncConnection, run_id: str) -> None:
    await connection.execute(_ends, {"run": run_id})
