"""Reads from the database what readers of a stream cannot measure."""

import asyncio

import psycopg

from benchmarks.processes import Process
from benchmarks.stacks import Stack
from benchmarks.system import System

GUARD_S = 300.0
POLL_S = 0.05


async def until_all(stack: Stack, runs: list[str], *, status: str) -> None:
    """Wait until all of these runs have this status.

    Raises:
        TimeoutError: they have not within five minutes.
    """
    query = "SELECT count(*) FROM agent_runs WHERE status = %s AND id = ANY(%s)"
    async with (
        asyncio.timeout(GUARD_S),
        await psycopg.AsyncConnection.connect(stack.database_url, autocommit=True) as database,
    ):
        while await (await database.execute(query, [status, runs])).fetchone() != (len(runs),):  # noqa: ASYNC110 - a row sets no event
            await asyncio.sleep(POLL_S)


def executing(system: System) -> Process:
    """The worker that has the one run."""
    with psycopg.connect(system.stack.database_url) as database:
        row = database.execute("SELECT host FROM workers JOIN agent_runs ON worker_id = workers.id").fetchone()
    assert row is not None
    pid = int(row[0].rpartition(":")[2])
    return next(worker for worker in system.workers if worker.pid == pid)
