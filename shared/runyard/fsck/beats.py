"""Finds runs that belong to workers whose beats do not rise."""

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from runyard.db.engine import Database
from runyard.db.tables import RUNNING, agent_runs, workers
from runyard.fsck.findings import Code, Finding

_held = sa.select(agent_runs.c.id, agent_runs.c.worker_id, agent_runs.c.invocation_id).where(
    agent_runs.c.status == RUNNING, agent_runs.c.worker_id.in_(sa.bindparam("workers", expanding=True))
)


class Beats:
    """`silent`: the beats that have not risen since the first look, by worker."""

    def __init__(self, database: Database) -> None:
        self.silent: dict[str, int] = {}
        self._database = database

    async def first_look(self, run_id: str | None) -> None:
        """Look at all workers that hold runs, or at the one that holds this run."""
        self.silent = await self._database.read(_beats_of_holders, run_id)

    async def look_again(self) -> None:
        """Keep only workers that still hold runs and whose beat has not risen."""
        if self.silent:
            now = await self._database.read(_beats_of_holders, None)
            self.silent = {worker: beat for worker, beat in self.silent.items() if now.get(worker) == beat}

    async def findings(self) -> list[Finding]:
        """One for each run of a silent worker."""
        return await self._database.read(_runs_of, self.silent) if self.silent else []


async def _beats_of_holders(connection: AsyncConnection, run_id: str | None) -> dict[str, int]:
    holds = sa.select(agent_runs.c.worker_id).where(agent_runs.c.worker_id.is_not(None))
    if run_id is not None:
        holds = holds.where(agent_runs.c.id == run_id)
    statement = sa.select(workers.c.id, workers.c.beat).where(workers.c.id.in_(holds))
    return {row.id: row.beat for row in await connection.execute(statement)}


async def _runs_of(connection: AsyncConnection, silent: dict[str, int]) -> list[Finding]:
    rows = await connection.execute(_held, {"workers": list(silent)})
    return [
        Finding(
            code=Code.WORKER_SILENT,
            detail=f"its worker's beat stands at {silent[row.worker_id]}",
            run_id=row.id,
            invocation_id=row.invocation_id,
            worker_id=row.worker_id,
        )
        for row in rows
    ]
