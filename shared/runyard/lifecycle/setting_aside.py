"""Failing a run that no worker can begin, so that it does not block the queue, or that no worker can settle, so that
it does not go from one to the next for ever.
"""

from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from runyard.db import turns
from runyard.db.records import Invocation, Run
from runyard.db.tables import agent_invocations, agent_runs
from runyard.db.turns import Totals
from runyard.errors import RunyardError
from runyard.lifecycle import settling
from runyard.lifecycle.endings import RESET_DISTANCE
from runyard.runs import RunEvent, RunStatus, after


async def set_aside(connection: AsyncConnection, found: Run, error: RunyardError, *, at: int) -> bool:
    """Fail a queued or running run using only its own row and its invocation's, since the other rows may be broken. Its
    waiting inputs are kept, for a person who repairs the rows.

    False: the run has changed since it was found.
    """
    locked = sa.select(agent_runs).where(
        agent_runs.c.id == found.id,
        agent_runs.c.generation == found.generation,
        agent_runs.c.status == found.status,
    )
    row = (await connection.execute(locked.with_for_update())).one_or_none()
    if row is None:
        return False
    run = Run(**row._mapping)
    begun = after(run.status, RunEvent.CLAIM) if run.status == RunStatus.QUEUED else run.status
    status = after(begun, RunEvent.FAIL)
    values: dict[str, Any] = {"status": status, "error": error.stored()}
    await connection.execute(
        sa.update(agent_runs)
        .where(agent_runs.c.id == run.id)
        .values(generation=run.generation + 1, worker_id=None, cancel_requested=False, last_activity_at=at, **values)
    )
    invocation = await turns.find_invocation(connection, run.id, run.newest_invocation)
    if invocation is None or invocation.settled_at is not None:
        return True
    settlement = settling.failed(
        run, invocation, Totals.stored(run, invocation), [], error, unanswered=[], last_frame=_last_frame(invocation)
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


def _last_frame(invocation: Invocation) -> int:
    """For an invocation that has begun, a number above all frames that its readers may have. Redis has fewer, so the
    stream is reset when it is closed, which makes it equal to the rows again.
    """
    if invocation.started_at is None:
        return 0
    return max(invocation.last_frame or 0, invocation.frame_base or 0) + RESET_DISTANCE
