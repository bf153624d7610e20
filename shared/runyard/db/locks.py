"""The run lock: every transaction that changes a run, its messages, inputs, calls or invocation takes it first.

A worker's lock carries the generation it claimed; where the row has another one, the run belongs to somebody else and
the whole transaction is refused. (A guard in the WHERE of another table's statement would be no fence: it is evaluated
against a snapshot, not against the locked row.) On SQLite the lock is the whole database: BEGIN IMMEDIATE.
"""

from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from runyard.db.records import Run
from runyard.db.tables import agent_runs
from runyard.errors import GenerationLost
from runyard.ids import RunId
from runyard.runs import RunStatus

_claimed = sa.and_(
    agent_runs.c.id == sa.bindparam("run"),
    agent_runs.c.generation == sa.bindparam("held_generation"),
    agent_runs.c.status == RunStatus.RUNNING,
)
_lock = sa.select(agent_runs).where(_claimed).with_for_update()
_update = sa.update(agent_runs).where(_claimed)  # the columns to set are those of the parameters
_lock_owned = (
    sa.select(agent_runs)
    .where(
        agent_runs.c.id == sa.bindparam("run"),
        agent_runs.c.tenant_id == sa.bindparam("tenant"),
        agent_runs.c.user_id == sa.bindparam("user"),
    )
    .with_for_update()
)


async def lock_claimed(connection: AsyncConnection, run_id: RunId, generation: int) -> Run:
    """A worker's lock on a run it runs.

    Raises:
        GenerationLost: the run changed hands, or is settled.
    """
    row = (await connection.execute(_lock, {"run": run_id, "held_generation": generation})).one_or_none()
    if row is None:
        raise GenerationLost(run_id)
    return Run(**row._mapping)


async def update_claimed(connection: AsyncConnection, run_id: RunId, generation: int, **values: Any) -> None:
    """`lock_claimed` and an UPDATE of the run in one statement: an UPDATE locks its row and re-checks its WHERE.

    Raises:
        GenerationLost: the run changed hands, or is settled.
    """
    result = await connection.execute(_update, {"run": run_id, "held_generation": generation, **values})
    if result.rowcount != 1:
        raise GenerationLost(run_id)


async def lock_owned(connection: AsyncConnection, run_id: str, *, tenant_id: str, user_id: str) -> Run | None:
    """The gateway's lock: without a generation, but only for the run's owner. None: unknown, or not theirs."""
    row = (await connection.execute(_lock_owned, {"run": run_id, "tenant": tenant_id, "user": user_id})).one_or_none()
    return None if row is None else Run(**row._mapping)
