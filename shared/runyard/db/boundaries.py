"""A worker's transactions at the boundaries of a turn.

The transaction that ends a turn also reads the waiting inputs, under the same lock. So no accepted input can be missed
between the last read and the settlement.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from runyard.blocks import Block
from runyard.db.claims import GivenBack
from runyard.db.inputs import folding, replacement_of, steering_of, user_content, waiting_inputs
from runyard.db.locks import claimed, lock_claimed, write_claimed
from runyard.db.records import Input, Message, Run
from runyard.db.tables import agent_invocations, agent_runs
from runyard.db.together import Update, Values, Write
from runyard.db.transcripts import AssistantTurn, appending, assistant_row, user_row
from runyard.db.turns import (
    INVOCATION_STEPPED,
    TOTAL_COLUMNS,
    FinishedCall,
    Held,
    Totals,
    finish_open_calls,
    finishing,
)
from runyard.priorities import rank_of
from runyard.runs import RunEvent, RunStatus, after


@dataclass(frozen=True, kw_only=True, slots=True)
class Settlement:
    """How an invocation ends. `result` and `error` are what its terminal frame will say; `last_frame` is the number of
    the last frame before the closing ones.
    """

    event: RunEvent
    result: dict[str, Any]
    error: dict[str, Any] | None
    last_frame: int


Conclude = Callable[[Sequence[Message], bool, Sequence[Input]], Settlement]
"""Makes the settlement, under the run lock, from the rows just appended, the cancel flag and the inputs left
unanswered."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Boundary:
    """What the transaction stored. `settlement` None: the invocation goes on.

    `replacement`: the queued call that takes the place of the one that ended.
    """

    appended: tuple[Message, ...]
    steered: tuple[Input, ...]
    cancel_requested: bool
    settlement: Settlement | None = None
    replacement: GivenBack | None = None


RUN_ANSWERED = Update(table=agent_runs, columns=("last_seq", "last_activity_at"), where=claimed)
_RUN_STEERED = Update(table=agent_runs, columns=(*RUN_ANSWERED.columns, *TOTAL_COLUMNS), where=claimed)
RUN_SETTLED = Update(
    table=agent_runs,
    columns=(*_RUN_STEERED.columns, "worker_id", "cancel_requested", "status", "error"),
    where=claimed,
)
_RUN_REPLACED = Update(table=agent_runs, columns=(*RUN_SETTLED.columns, "invocation_id", "rank"), where=claimed)
_INVOCATION_SETTLED = Update(
    table=agent_invocations,
    columns=("status", "result", "error", "last_frame", "last_seq", "closing_rows", "settled_at", *TOTAL_COLUMNS),
    where=agent_invocations.c.id == sa.bindparam("invocation"),
)


async def append_results(
    connection: AsyncConnection,
    held: Held,
    assistant_seq: int,
    *,
    finished: Sequence[FinishedCall],
    results: Sequence[Block],
    at: int,
) -> Boundary:
    """The tool boundary: append one user row with all results of the batch, in the order of the calls, and then the
    steering.

    Raises:
        GenerationLost: the run belongs to another worker.
    """
    run = await lock_claimed(connection, held.run_id, held.generation)
    seq = assistant_seq + 1
    steered = steering_of(await waiting_inputs(connection, run.id), held.invocation_id, seq)
    row = user_row(run.id, held.invocation_id, seq, user_content(results, steered), at=at)
    await write_claimed(
        connection,
        run.id,
        held.generation,
        (RUN_ANSWERED, {"last_seq": seq, "last_activity_at": at}),
        *finishing(held, assistant_seq, finished, at=at),
        *appended(held, [row], steered),
    )
    return Boundary(appended=(row,), steered=steered, cancel_requested=run.cancel_requested)


async def end_turn(
    connection: AsyncConnection,
    held: Held,
    *,
    turn: AssistantTurn | None,
    results: Sequence[Block],
    conclude: Conclude,
    totals: Totals,
    at: int,
) -> Boundary:
    """The terminal boundary: store the model's last turn, read the steering and the cancel flag, and settle.

    If steering waits and no cancel was requested, the invocation goes on with the steering as its next user turn.
    Otherwise `conclude` makes the settlement; steering that waits at a cancel is kept in the transcript.

    `turn` None: the model said nothing. `results`: the answers to calls of the turn that will not run.

    Raises:
        GenerationLost: the run belongs to another worker.
    """
    run = await lock_claimed(connection, held.run_id, held.generation)
    waiting = await waiting_inputs(connection, run.id)
    rows = [] if turn is None else [assistant_row(run.id, held.invocation_id, turn, at=at)]
    steered = steering_of(waiting, held.invocation_id, run.last_seq + len(rows) + 1)
    rows += answers(held, run.last_seq + len(rows), results, steered, at=at)
    if steered and not run.cancel_requested:
        change = {"last_seq": run.last_seq + len(rows), "last_activity_at": at, **totals.run_values()}
        invocation = {"invocation": held.invocation_id, **totals.invocation_values()}
        await write_claimed(
            connection,
            run.id,
            held.generation,
            (_RUN_STEERED, change),
            *appended(held, rows, steered),
            (INVOCATION_STEPPED, invocation),
        )
        return Boundary(appended=tuple(rows), steered=steered, cancel_requested=False)
    settlement = conclude(rows, run.cancel_requested, [])
    return await _settle(
        connection,
        run,
        held,
        rows=rows,
        steered=steered,
        waiting=waiting,
        settlement=settlement,
        totals=totals,
        at=at,
    )


async def fail_turn(
    connection: AsyncConnection,
    held: Held,
    *,
    results: Sequence[Block],
    conclude: Conclude,
    totals: Totals,
    at: int,
) -> Boundary:
    """Settle an invocation that failed. `results`: the answers to its open calls. Its steering stays unanswered.

    If a cancel was requested meanwhile, the run is cancelled instead, and steering is kept in the transcript.

    Raises:
        GenerationLost: the run belongs to another worker.
    """
    run = await lock_claimed(connection, held.run_id, held.generation)
    await finish_open_calls(connection, run.id, run.last_seq, results, at=at)
    waiting = await waiting_inputs(connection, run.id)
    of_this = [item for item in waiting if item.invocation_id == held.invocation_id]
    steered = steering_of(of_this, held.invocation_id, run.last_seq + 1) if run.cancel_requested else ()
    rows = answers(held, run.last_seq, results, steered, at=at)
    settlement = conclude(rows, run.cancel_requested, [] if steered else of_this)
    return await _settle(
        connection,
        run,
        held,
        rows=rows,
        steered=steered,
        waiting=waiting,
        settlement=settlement,
        totals=totals,
        at=at,
    )


def answers(held: Held, seq: int, results: Sequence[Block], steered: Sequence[Input], *, at: int) -> list[Message]:
    """The user row that follows row `seq`; none if there is nothing to put into it."""
    if not results and not steered:
        return []
    return [user_row(held.run_id, held.invocation_id, seq + 1, user_content(results, steered), at=at)]


def appended(held: Held, rows: Sequence[Message], steered: Sequence[Input]) -> list[tuple[Write, Values]]:
    """The writes that append these rows and fold the steering into the last of them."""
    writes = [appending(row) for row in rows]
    return [*writes, folding(held.run_id, held.invocation_id, rows[-1].seq)] if steered else writes


async def _settle(
    connection: AsyncConnection,
    run: Run,
    held: Held,
    *,
    rows: Sequence[Message],
    steered: tuple[Input, ...],
    waiting: Sequence[Input],
    settlement: Settlement,
    totals: Totals,
    at: int,
) -> Boundary:
    """Settle the invocation and the run. If another call waits to take the invocation's place, the run is queued for it
    instead.
    """
    replacement = replacement_of(waiting, held.invocation_id)
    last_seq = run.last_seq + len(rows)
    change = {**_settled(run, settlement, replacement), **left(last_seq, totals, at=at)}
    await write_claimed(
        connection,
        run.id,
        held.generation,
        (RUN_SETTLED if replacement is None else _RUN_REPLACED, change),
        *appended(held, rows, steered),
        settling(held, settlement, rows, last_seq, totals, at=at),
    )
    return Boundary(
        appended=tuple(rows),
        steered=steered,
        cancel_requested=run.cancel_requested,
        settlement=settlement,
        replacement=None
        if replacement is None
        else GivenBack(run_id=run.id, invocation_id=replacement.invocation_id, queue=run.queue),
    )


def left(last_seq: int, totals: Totals, *, at: int) -> Values:
    """What a settlement changes in its run, besides the status: no worker has it any more."""
    return {
        "worker_id": None,
        "cancel_requested": False,
        "last_seq": last_seq,
        "last_activity_at": at,
        **totals.run_values(),
    }


def settling(
    held: Held, settlement: Settlement, rows: Sequence[Message], last_seq: int, totals: Totals, *, at: int
) -> tuple[Write, Values]:
    """The write of the invocation's end, with the rows that it appends."""
    return _INVOCATION_SETTLED, {
        "invocation": held.invocation_id,
        "status": after(RunStatus.RUNNING, settlement.event),
        "result": settlement.result,
        "error": settlement.error,
        "last_frame": settlement.last_frame,
        "last_seq": last_seq,
        "closing_rows": len(rows),
        "settled_at": at,
        **totals.invocation_values(),
    }


def _settled(run: Run, settlement: Settlement, replacement: Input | None) -> Values:
    """The run's new status. A replacement is queued as of the time when it was accepted."""
    if replacement is None:
        return {"status": after(RunStatus.RUNNING, settlement.event), "error": settlement.error}
    return {
        "status": after(RunStatus.RUNNING, RunEvent.REPLACE),
        "error": None,
        "invocation_id": replacement.invocation_id,
        "rank": rank_of(run.priority, replacement.created_at),
    }
