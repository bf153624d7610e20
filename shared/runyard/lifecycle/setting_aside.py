"""Failing a queued run that no worker can begin, so that it does not block the queue."""

from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from runyard.db import turns
from runyard.db.records import Run
from runyard.db.tables import agent_invocations, agent_runs
from runyard.db.turns import Totals
from runyard.errors import InternalError
from runyard.lifecycle import settling
from runyard.runs import RunEvent, RunStatus, after


async def set_aside(connection: AsyncConnection, found: Run, *, at: int) -> bool:
    """Fail the run using only its own row and its invocation's, since the other rows may be broken. Its waiting inputs
    are kept, for a person who repairs the rows.

    False: the run has changed since it was found.
    """
    locked = sa.select(agent_runs).where(
        agent_runs.c.id == found.id,
        agent_runs.c.generation == found.generation,
        agent_runs.c.status == RunStatus.QUEUED,
    )
    row = (await connection.execute(locked.with_for_update())).one_or_none()
    if row is None:
        return False
    run = Run(**row._mapping)
    status = after(after(run.status, RunEvent.CLAIM), RunEvent.FAIL)
    error = InternalError("The rows of the run do not fit together")
    values: dict[str, Any] = {"status": status, "error": error.stored()}
    await connection.execute(
        sa.update(agent_runs)
        .where(agent_runs.c.id == run.id)
        .values(generation=run.generation + 1, cancel_requested=False, last_activity_at=at, **values)
    )
    invocation = await turns.find_invocation(connection, run.id, run.newest_invocation)
    if invocation is None or invocation.settled_at is not None:
        return True
    settlement = settling.failed(
        run, invocation, Totals.stored(run, invocation), [], error, unanswered=[], last_frame=invocation.last_frame or 0
    )
    await connection.execute(
        sa.update(agent_invocations)
        .where(agent_invocations.c.id == invocation.id)
        .values(
            result=settlement.result,
            last_frame=settlement.last_frame,
            last_seq=run.last_seq,
            closing_rows=0,
            settled_at=at,
            **values,
        )
    )
    return True
