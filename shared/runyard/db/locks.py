"""The run lock. Every transaction that changes a run, its messages, inputs, calls or invocation takes it first.

A worker locks the row at the generation that it claimed. If the row has another generation, the run belongs to another
worker, and the whole transaction is refused. (A condition in the WHERE of another table's statement would be no fence:
it is evaluated against a snapshot, not against the locked row.) On SQLite the lock is the whole database: BEGIN
IMMEDIATE.
"""

from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from runyard.db.records import Run
from runyard.db.scope import Scope, Scoped
from runyard.db.tables import agent_runs
from runyard.db.together import Lock, Update, Values, Write, write_together
from runyard.errors import GenerationLost
from runyard.ids import RunId
from runyard.runs import RunStatus

claimed = sa.and_(
    agent_runs.c.id == sa.bindparam("run"),
    agent_runs.c.generation == sa.bindparam("held_generation"),
    agent_runs.c.status == RunStatus.RUNNING,
)
"""Matches a run that its worker still holds; `fence` gives the parameters."""

_lock = sa.select(agent_runs).where(claimed).with_for_update()
_LOCK = Lock(table=agent_runs, where=claimed)
_lock_owned = Scoped(sa.select(agent_runs).where(agent_runs.c.id == sa.bindparam("run")).with_for_update())


def fence(run_id: RunId, generation: int) -> dict[str, Any]:
    return {"run": run_id, "held_generation": generation}


async def lock_claimed(connection: AsyncConnection, run_id: RunId, generation: int) -> Run:
    """Lock a run that this worker runs.

    Raises:
        GenerationLost: the run changed hands, or is settled.
    """
    row = (await connection.execute(_lock, fence(run_id, generation))).one_or_none()
    if row is None:
        raise GenerationLost(run_id)
    return Run(**row._mapping)


async def write_claimed(
    connection: AsyncConnection,
    run_id: RunId,
    generation: int,
    change: tuple[Update, Values],
    *others: tuple[Write, Values],
) -> None:
    """Lock a run as `lock_claimed` does, change it, and do the `others` too, in one round trip.

    `change` is an Update whose `where` is `claimed`: an UPDATE locks its row and checks its WHERE again under the lock.

    Raises:
        GenerationLost: the run changed hands, or is settled.
    """
    update, values = change
    if not await write_together(connection, (update, {**fence(run_id, generation), **values}), *others):
        raise GenerationLost(run_id)


async def write_locked(
    connection: AsyncConnection, run_id: RunId, generation: int, *writes: tuple[Write, Values]
) -> None:
    """Lock a run as `lock_claimed` does and write what hangs on it, in one round trip.

    Raises:
        GenerationLost: the run changed hands, or is settled.
    """
    if not await write_together(connection, (_LOCK, fence(run_id, generation)), *writes):
        raise GenerationLost(run_id)


async def lock_owned(connection: AsyncConnection, run_id: str, scope: Scope) -> Run | None:
    """Lock a run for a gateway's caller, whatever its generation. None: the run is unknown, or not this caller's."""
    row = (await _lock_owned.execute(connection, scope, run=run_id)).one_or_none()
    return None if row is None else Run(**row._mapping)
