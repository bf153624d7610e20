"""The statements of an idle worker: without a run, and with a thousand runs that wait for the model.

A relay before Postgres counts the statements that the worker sends, transaction control included.
"""

from tests.standin import ping_until, silent

from benchmarks.report import Figure, Floor, Section
from benchmarks.rows import until_all
from benchmarks.stacks import postgres_redis
from benchmarks.statement_relay import counting_statements
from benchmarks.system import AGENT, System, running
from benchmarks.targets import POLLING
from benchmarks.wire import RUNYARD_TEXT

RUNS, RUNS_QUICK = 1_000, 200
WINDOW_S, WINDOW_QUICK_S = 30.0, 10.0
"""Many times the longest period of the worker's duties, which is 5 s."""

SLOTS_FREE = 100
"""A full worker would not look for queued runs."""

GATE = "parked"
PING_MS = 20_000.0


async def measure(*, quick: bool) -> Section:
    runs, window_s = (RUNS_QUICK, WINDOW_QUICK_S) if quick else (RUNS, WINDOW_S)
    with postgres_redis() as stack:
        async with counting_statements(stack.database_url) as relay:
            settings = {"RUNYARD_DATABASE_URL": relay.url, "RUNYARD_WORKER_SLOTS": str(runs + SLOTS_FREE)}
            async with running(stack, settings=settings) as system:
                idle = await relay.per_s(window_s)
                parked_ids = await _park(system, runs)
                parked = await relay.per_s(window_s)
                await system.standin.gate(GATE).release()
                await until_all(stack, parked_ids, status="completed")
    return Section(
        name="polling",
        title="Statements per second of one worker while nothing happens, Postgres + Redis",
        figures=[
            Figure(name="no run", value=idle, unit="/s"),
            Figure(
                name=f"{runs:,} runs that wait for the model",
                value=parked,
                unit="/s",
                floor=Floor(what="no run", value=idle),
                targets=POLLING,
            ),
        ],
    )


async def _park(system: System, runs: int) -> list[str]:
    """Runs whose model says nothing but a ping now and then."""
    await system.standin.answers(silent.then(ping_until(GATE, every_ms=PING_MS)).says("Done."), by="turn")
    caller = await system.caller()
    ids = []
    for _ in range(runs):
        answer = await caller.post(f"/v1/agents/{AGENT}/runs", {"input": "wait"}, text=RUNYARD_TEXT)
        assert answer.status == 202, answer
        ids.append(answer.headers["x-run-id"])
    caller.close()
    await until_all(system.stack, ids, status="running")
    await system.standin.gate(GATE).reached(runs)
    return ids
