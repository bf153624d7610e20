"""Cancelling a run. One that no worker runs is settled at once; a running one is asked to stop; a settled one keeps its
status.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from runyard.blocks import CANCELLED, Block
from runyard.db import turns
from runyard.db.inputs import drop_inputs, replacement_of, take_due, touch, user_content, waiting_inputs
from runyard.db.locks import lock_owned
from runyard.db.records import Input, Invocation, Message, Run
from runyard.db.scope import Scope
from runyard.db.tables import agent_invocations, agent_runs
from runyard.db.transcripts import append, user_row
from runyard.db.turns import Totals
from runyard.errors import RunNotFound
from runyard.ids import InvocationId, RunId
from runyard.lifecycle import settling
from runyard.lifecycle.endings import Ending, ending, kept_last
from runyard.priorities import rank_of
from runyard.runs import RunEvent, RunStatus, after


@dataclass(frozen=True, kw_only=True, slots=True)
class Cancelled:
    """What a cancel found and did.

    `run`: as the cancel found it. `invocation_id`: the invocation that was to be cancelled; None: the run has had none.
    `status`: the run's status afterwards, or that of an invocation that had ended before. `dropped`: inputs that no
    turn will read. `ending`: the end of an invocation that was settled here; the caller has to close its stream.
    """

    run: Run
    invocation_id: InvocationId | None
    status: RunStatus
    dropped: tuple[Input, ...] = ()
    ending: Ending | None = None


async def cancel_run(
    connection: AsyncConnection, run_id: str, scope: Scope, *, invocation_id: str | None = None, at: int
) -> Cancelled:
    """Cancel one invocation: the one that the caller names, or else the run's newest. Later ones are not affected, not
    even one that already waits to take its place.

    Raises:
        RunNotFound: the run is unknown or not this caller's, or it has no such invocation.
    """
    run = await lock_owned(connection, run_id, scope)
    if run is None:
        raise RunNotFound("Run not found", runId=run_id)
    if invocation_id is not None and invocation_id != run.invocation_id:
        return await _cancel_other(connection, run, invocation_id, at=at)
    return await _cancel_newest(connection, run, at=at)


async def _cancel_newest(connection: AsyncConnection, run: Run, *, at: int) -> Cancelled:
    match run.status:
        case RunStatus.RUNNING:
            await connection.execute(
                sa.update(agent_runs).where(agent_runs.c.id == run.id).values(cancel_requested=True)
            )
            return Cancelled(run=run, invocation_id=run.invocation_id, status=run.status)
        case RunStatus.QUEUED:
            dropped = _steering(run, await waiting_inputs(connection, run.id))
            await drop_inputs(connection, run.id, dropped)
            return replace(await settle_queued(connection, run, at=at), dropped=dropped)
        case RunStatus.IDLE:
            status = after(run.status, RunEvent.CANCEL)
            await connection.execute(sa.update(agent_runs).where(agent_runs.c.id == run.id).values(status=status))
            return Cancelled(run=run, invocation_id=run.invocation_id, status=status)
        case _:
            waiting = tuple(await waiting_inputs(connection, run.id))
            await drop_inputs(connection, run.id, waiting)
            if waiting:
                await touch(connection, run.id)
            return Cancelled(run=run, invocation_id=run.invocation_id, status=run.status, dropped=waiting)


async def _cancel_other(connection: AsyncConnection, run: Run, invocation_id: str, *, at: int) -> Cancelled:
    """Cancel an invocation that is not the run's current one: it has ended, or it waits to replace the current one."""
    invocation = await turns.find_invocation(connection, run.id, invocation_id)
    if invocation is None:
        raise RunNotFound("Invocation not found", runId=run.id, invocationId=invocation_id)
    if invocation.settled_at is not None:
        return Cancelled(run=run, invocation_id=invocation.id, status=invocation.status)
    waiting = await waiting_inputs(connection, run.id)
    dropped = tuple(item for item in waiting if item.invocation_id == invocation.id)
    await drop_inputs(connection, run.id, dropped)
    await touch(connection, run.id)
    rows = await turns.load_messages(connection, run.id)
    closing = await _settle(connection, run, invocation, rows, appended=[], last_frame=0, at=at)
    return Cancelled(run=run, invocation_id=invocation.id, status=run.status, dropped=dropped, ending=closing)


async def cancel_given_back(connection: AsyncConnection, run_id: RunId, *, at: int) -> Cancelled | None:
    """Settle a run that was asked to stop and whose worker has left or died. In the queue it would have to wait for a
    worker only to be stopped.

    None: the run is not queued any more, or is not to stop any more.
    """
    locked = sa.select(agent_runs).where(agent_runs.c.id == run_id).with_for_update()
    row = (await connection.execute(locked)).one_or_none()
    if row is None or row.status != RunStatus.QUEUED or not row.cancel_requested:
        return None
    return await settle_queued(connection, Run(**row._mapping), at=at)


async def settle_queued(connection: AsyncConnection, run: Run, *, at: int) -> Cancelled:
    """Settle a queued run as cancelled; the run lock is held.

    Its waiting inputs and those that earlier calls left unanswered are kept in the transcript. Tool calls that a worker
    left open are answered. If another call waits to take this one's place, the run is queued for that call.
    """
    invocation = await turns.load_invocation(connection, run.newest_invocation)
    rows = await turns.load_messages(connection, run.id)
    results = await _open_calls(connection, run, invocation, rows)
    await turns.finish_open_calls(connection, run.id, run.last_seq, results, at=at)
    seq = run.last_seq + 1
    inputs = await take_due(connection, run.id, invocation.id, seq)
    appended: list[Message] = []
    if results or inputs:
        appended.append(user_row(run.id, invocation.id, seq, user_content(results, inputs), at=at))
        await append(connection, appended[0])
        rows += appended
    last_frame = kept_last(rows, invocation.id, base=invocation.frame_base or 0, sent=invocation.last_frame or 0)
    ended = await _settle(connection, run, invocation, rows, appended=appended, last_frame=last_frame, at=at)
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
    return Cancelled(run=run, invocation_id=invocation.id, status=values["status"], ending=ended)


async def _settle(
    connection: AsyncConnection,
    run: Run,
    invocation: Invocation,
    rows: Sequence[Message],
    *,
    appended: Sequence[Message],
    last_frame: int,
    at: int,
) -> Ending:
    """Settle an invocation that no worker runs, as cancelled. `rows`: the whole transcript; `appended`: those of its
    rows that this transaction has added.
    """
    settlement = settling.cancelled(run, invocation, Totals.stored(run, invocation), rows, last_frame=last_frame)
    values = {
        "status": after(RunStatus.QUEUED, settlement.event),
        "result": settlement.result,
        "last_frame": last_frame,
        "last_seq": rows[-1].seq,
        "closing_rows": len(appended),
        "settled_at": at,
    }
    await connection.execute(
        sa.update(agent_invocations).where(agent_invocations.c.id == invocation.id).values(**values)
    )
    return ending(invocation, settlement, rows, appended=appended)


async def _open_calls(
    connection: AsyncConnection, run: Run, invocation: Invocation, rows: Sequence[Message]
) -> list[Block]:
    if invocation.started_at is None:
        return []  # calls that an earlier invocation left open are answered when the next request is built
    ledger = await turns.load_calls(connection, run.id, rows[-1].seq)
    return settling.open_calls(rows, ledger, not_started=CANCELLED)


def _steering(run: Run, waiting: Sequence[Input]) -> tuple[Input, ...]:
    return tuple(item for item in waiting if item.invocation_id == run.invocation_id and not item.opens)
