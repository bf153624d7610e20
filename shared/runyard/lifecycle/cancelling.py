"""Cancelling: a run that no worker runs settles at once, one that runs is asked to, one that is settled stays so."""

from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from runyard.blocks import CANCELLED
from runyard.db import turns
from runyard.db.inputs import drop_inputs, fold_inputs, waiting_inputs
from runyard.db.locks import lock_owned
from runyard.db.reads import Owner
from runyard.db.records import Input, Invocation, Run
from runyard.db.tables import agent_invocations, agent_runs
from runyard.db.turns import Totals
from runyard.errors import RunNotFound
from runyard.lifecycle import settling
from runyard.lifecycle.endings import Ending, ending, kept_last
from runyard.runs import RunEvent, RunStatus, after


@dataclass(frozen=True, kw_only=True, slots=True)
class Cancelled:
    """`ending`: of the stream that ended here, owed by whoever called. `dropped`: inputs that nobody will read."""

    run: Run
    status: RunStatus
    dropped: tuple[Input, ...]
    ending: Ending | None


async def cancel_run(connection: AsyncConnection, run_id: str, owner: Owner, *, at: int) -> Cancelled:
    """One transaction. A cancel is bound to the invocation it sees: a later one is not touched by it.

    Raises:
        RunNotFound: unknown, or not this user's.
    """
    run = await lock_owned(connection, run_id, tenant_id=owner.tenant_id, user_id=owner.user_id)
    if run is None:
        raise RunNotFound("Run not found", runId=run_id)
    match run.status:
        case RunStatus.RUNNING:
            await connection.execute(
                sa.update(agent_runs).where(agent_runs.c.id == run.id).values(cancel_requested=True)
            )
            return Cancelled(run=run, status=run.status, dropped=(), ending=None)
        case RunStatus.QUEUED:
            return await settle_queued(connection, run, at=at)
        case _:
            waiting = await waiting_inputs(connection, run.id)
            await drop_inputs(connection, run.id, waiting)
            return Cancelled(run=run, status=run.status, dropped=tuple(waiting), ending=None)


async def settle_queued(connection: AsyncConnection, run: Run, *, at: int) -> Cancelled:
    """Settle a queued run as cancelled; the run lock is held.

    The opening input of a call that no worker has begun is kept in the transcript, with what earlier calls left
    unanswered; steering is dropped. Calls that a worker left open are answered. A call that was to take the place of
    this one is next.
    """
    _, invocation = await turns.load_run(connection, run.id)
    dropped, replacement = await _sort_waiting(connection, run, invocation)
    await fold_inputs(connection, run, at=at)
    rows = await turns.load_messages(connection, run.id)
    ledger = await turns.load_calls(connection, run.id, rows[-1].seq)
    if results := settling.open_calls(rows, ledger, not_started=CANCELLED):
        rows.append(await turns.append_user_row(connection, run, rows[-1].seq + 1, results, at=at))
    last_frame = kept_last(rows, invocation.id, invocation.frame_base or 0)
    settlement = settling.cancelled(run, invocation, Totals.stored(run, invocation), rows, last_frame=last_frame)
    status = after(run.status, RunEvent.CANCEL)
    values: dict[str, Any] = {"status": status}
    if replacement is not None:
        values = {
            "status": after(status, RunEvent.TURN),
            "invocation_id": replacement.invocation_id,
            "rank": replacement.created_at,
        }
    await connection.execute(
        sa.update(agent_runs)
        .where(agent_runs.c.id == run.id)
        .values(cancel_requested=False, error=None, last_seq=rows[-1].seq, last_activity_at=at, **values)
    )
    await connection.execute(
        sa.update(agent_invocations)
        .where(agent_invocations.c.id == invocation.id)
        .values(status=status, result=settlement.result, last_frame=last_frame, last_seq=rows[-1].seq, settled_at=at)
    )
    return Cancelled(run=run, status=values["status"], dropped=dropped, ending=ending(invocation, settlement, rows))


async def _sort_waiting(
    connection: AsyncConnection, run: Run, invocation: Invocation
) -> tuple[tuple[Input, ...], Input | None]:
    """The steering, which is deleted, and the opening input of a call that takes the place of this one."""
    waiting = await waiting_inputs(connection, run.id)
    if invocation.started_at is None:
        opening = next(index for index, item in enumerate(waiting) if item.invocation_id == invocation.id)
        waiting = waiting[opening + 1 :]
    steering = [item for item in waiting if item.invocation_id == invocation.id]
    await drop_inputs(connection, run.id, steering)
    return tuple(steering), next((item for item in waiting if item.invocation_id != invocation.id), None)
