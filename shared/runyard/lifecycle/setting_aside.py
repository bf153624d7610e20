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
from runyard.priorities import rank_of
from runyard.runs import RunEvent, RunStatus, after

_next = (
    sa.select(agent_invocations.c.id, agent_invocations.c.created_at)
    .where(
        agent_invocations.c.run_id == sa.bindparam("run"),
        agent_invocations.c.id != sa.bindparam("current"),
        agent_invocations.c.settled_at.is_(None),
    )
    .order_by(agent_invocations.c.created_at, agent_invocations.c.id)
    .limit(1)
)


async def set_aside(connection: AsyncConnection, found: Run, error: RunyardError, *, at: int) -> bool:
    """Fail a queued or running run using only its own row and its invocations', since the other rows may be broken. Its
    waiting inputs are kept, for a person who repairs the rows. If another call waits to take the invocation's place,
    the run is queued for it instead: where that cannot begin either, it fails in its turn.

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
    values: dict[str, Any] = {"status": after(begun, RunEvent.FAIL), "error": error.stored()}
    replaced = await _replaced(connection, run, begun)
    await connection.execute(
        sa.update(agent_runs)
        .where(agent_runs.c.id == run.id)
        .values(
            generation=run.generation + 1,
            worker_id=None,
            cancel_requested=False,
            last_activity_at=at,
            **(values if replaced is None else replaced),
        )
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


async def _replaced(connection: AsyncConnection, run: Run, begun: RunStatus) -> dict[str, Any] | None:
    """How the run goes on with the call that waits to take its invocation's place. None: there is none."""
    row = (await connection.execute(_next, {"run": run.id, "current": run.newest_invocation})).one_or_none()
    if row is None:
        return None
    return {
        "status": after(begun, RunEvent.REPLACE),
        "error": None,
        "invocation_id": row.id,
        "rank": rank_of(run.priority, row.created_at),
    }


def _last_frame(invocation: Invocation) -> int:
    """For an invocation that has begun, a number above all frames that its readers may have. Redis has fewer, so the
    stream is reset when it is closed, which makes it equal to the rows again.
    """
    if invocation.started_at is None:
        return 0
    return max(invocation.last_frame or 0, invocation.frame_base or 0) + RESET_DISTANCE
