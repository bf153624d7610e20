"""Cancelling: a run that no worker runs settles at once, one that runs is asked to, one that is settled stays so."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from runyard.blocks import CANCELLED, Block
from runyard.db import turns
from runyard.db.inputs import drop_inputs, replacement_of, take_due, user_content, waiting_inputs
from runyard.db.locks import lock_owned
from runyard.db.records import Input, Invocation, Message, Run
from runyard.db.scope import Scope
from runyard.db.tables import agent_invocations, agent_runs
from runyard.db.transcripts import append, user_row
from runyard.db.turns import Totals
from runyard.errors import RunNotFound
from runyard.ids import RunId
from runyard.lifecycle import settling
from runyard.lifecycle.endings import Ending, ending, kept_last
from runyard.priorities import rank_of
from runyard.runs import RunEvent, RunStatus, after


@dataclass(frozen=True, kw_only=True, slots=True)
class Cancelled:
    """`run`: as the cancel found it; `status`: of it afterwards. `dropped`: inputs that nobody will read.

    `ending`: of the invocation that ended here; its stream is owed by whoever called.
    """

    run: Run
    status: RunStatus
    dropped: tuple[Input, ...] = ()
    ending: Ending | None = None


async def cancel_run(connection: AsyncConnection, run_id: str, scope: Scope, *, at: int) -> Cancelled:
    """One transaction. A cancel is bound to the invocation it sees: a later one is not touched by it, not even one
    that waits already to take its place.

    Raises:
        RunNotFound: unknown, or not this caller's.
    """
    run = await lock_owned(connection, run_id, scope)
    if run is None:
        raise RunNotFound("Run not found", runId=run_id)
    match run.status:
        case RunStatus.RUNNING:
            await connection.execute(
                sa.update(agent_runs).where(agent_runs.c.id == run.id).values(cancel_requested=True)
            )
            return Cancelled(run=run, status=run.status)
        case RunStatus.QUEUED:
            dropped = _steering(run, await waiting_inputs(connection, run.id))
            await drop_inputs(connection, run.id, dropped)
            settled = await settle_queued(connection, run, at=at)
            return Cancelled(run=run, status=settled.status, dropped=dropped, ending=settled.ending)
        case RunStatus.IDLE:
            status = after(run.status, RunEvent.CANCEL)
            await connection.execute(sa.update(agent_runs).where(agent_runs.c.id == run.id).values(status=status))
            return Cancelled(run=run, status=status)
        case _:
            waiting = tuple(await waiting_inputs(connection, run.id))
            await drop_inputs(connection, run.id, waiting)
            return Cancelled(run=run, status=run.status, dropped=waiting)


async def cancel_given_back(connection: AsyncConnection, run_id: RunId, *, at: int) -> Cancelled | None:
    """Settle a run whose cancel came as a worker gave it back: queued, it would wait for its turn to be stopped.

    None: somebody else has it, or nobody asks any more.
    """
    locked = sa.select(agent_runs).where(agent_runs.c.id == run_id).with_for_update()
    row = (await connection.execute(locked)).one_or_none()
    if row is None or row.status != RunStatus.QUEUED or not row.cancel_requested:
        return None
    return await settle_queued(connection, Run(**row._mapping), at=at)


async def settle_queued(connection: AsyncConnection, run: Run, *, at: int) -> Cancelled:
    """Settle a queued run as cancelled; the run lock is held.

    What waits for it is kept in the transcript, and what earlier calls left unanswered; calls that a worker left open
    are answered. A call that was to take the place of this one is next.
    """
    invocation = await turns.load_invocation(connection, run.newest_invocation)
    rows = await turns.load_messages(connection, run.id)
    results = await _open_calls(connection, run, invocation, rows)
    await turns.finish_open_calls(connection, run.id, run.last_seq, results, at=at)
    seq = run.last_seq + 1
    inputs = await take_due(connection, run.id, invocation.id, seq)
    if results or inputs:
        content = user_content(results, inputs)
        rows.append(user_row(run.id, invocation.id, seq, content, at=at))
        await append(connection, rows[-1])
    last_frame = kept_last(rows, invocation.id, base=invocation.frame_base or 0, sent=invocation.last_frame or 0)
    settlement = settling.cancelled(run, invocation, Totals.stored(run, invocation), rows, last_frame=last_frame)
    status = after(run.status, RunEvent.CANCEL)
    values: dict[str, Any] = {"status": status}
    replacement = replacement_of(await waiting_inputs(connection, run.id), invocation.id)
    if replacement is not None:
        values = {
            "status": after(status, RunEvent.TURN),
            "invocation_id": replacement.invocation_id,
            "rank": rank_of(run.priority, replacement.created_at),
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
    return Cancelled(run=run, status=values["status"], ending=ending(invocation, settlement, rows))


async def _open_calls(
    connection: AsyncConnection, run: Run, invocation: Invocation, rows: Sequence[Message]
) -> list[Block]:
    if invocation.started_at is None:
        return []  # what an earlier invocation left open is answered where the next request is built
    ledger = await turns.load_calls(connection, run.id, rows[-1].seq)
    return settling.open_calls(rows, ledger, not_started=CANCELLED)


def _steering(run: Run, waiting: Sequence[Input]) -> tuple[Input, ...]:
    return tuple(item for item in waiting if item.invocation_id == run.invocation_id and not item.opens)
