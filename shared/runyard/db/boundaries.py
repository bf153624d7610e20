"""A worker's transactions at a turn's boundaries.

What was sent meanwhile is read under the lock that the turn ends with: nothing that was accepted can slip between the
last look and the settlement.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from runyard.blocks import Block
from runyard.db.claims import GivenBack
from runyard.db.inputs import replacement_of, take_steering, user_content, waiting_inputs
from runyard.db.locks import lock_claimed
from runyard.db.records import Input, Message, Run
from runyard.db.tables import agent_invocations, agent_runs
from runyard.db.transcripts import AssistantTurn, append_assistant_row, append_user_row
from runyard.db.turns import FinishedCall, Held, Totals, store_result
from runyard.runs import RunEvent, RunStatus, after


@dataclass(frozen=True, kw_only=True, slots=True)
class Settlement:
    """How an invocation ends. `result` and `error` are what its terminal frame will say."""

    event: RunEvent
    result: dict[str, Any]
    error: dict[str, Any] | None
    last_frame: int


Conclude = Callable[[Sequence[Message], bool, Sequence[Input]], Settlement]
"""Makes a settlement under the run lock, of the rows just appended, the cancel flag and the inputs left unanswered."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Boundary:
    """What a boundary's transaction stored. `settlement` None: the invocation goes on.

    `replacement`: the call that took the place of the one that ended.
    """

    appended: tuple[Message, ...]
    steered: tuple[Input, ...]
    cancel_requested: bool
    settlement: Settlement | None = None
    replacement: GivenBack | None = None


_change_run = sa.update(agent_runs).where(agent_runs.c.id == sa.bindparam("run"))
_change_invocation = sa.update(agent_invocations).where(agent_invocations.c.id == sa.bindparam("invocation"))


async def append_results(
    connection: AsyncConnection,
    held: Held,
    assistant_seq: int,
    *,
    finished: Sequence[FinishedCall],
    results: Sequence[Block],
    at: int,
) -> Boundary:
    """The tool boundary: all results of the batch in the order of the calls, then what steers the run, as one user row.

    Raises:
        GenerationLost: the run belongs to another worker.
    """
    run = await lock_claimed(connection, held.run_id, held.generation)
    for call in finished:
        await store_result(connection, held, assistant_seq, call, at=at)
    seq = assistant_seq + 1
    steered = await take_steering(connection, held.run_id, held.invocation_id, seq)
    content = user_content(results, steered)
    row = await append_user_row(connection, held.run_id, held.invocation_id, seq, content, at=at)
    await _update_run(connection, held, last_seq=seq, last_activity_at=at)
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
    """The terminal boundary: the model's last turn, what steers the run, the cancel flag, and the end, if it is one.

    With steering and no cancel the invocation goes on: the inputs become its next user turn. Otherwise `conclude`
    makes the settlement from what is appended by then; steering that a cancel finds is kept in the transcript.

    `results` answer calls of the turn that do not run.

    Raises:
        GenerationLost: the run belongs to another worker.
    """
    run = await lock_claimed(connection, held.run_id, held.generation)
    rows = [] if turn is None else [await append_assistant_row(connection, run.id, held.invocation_id, turn, at=at)]
    seq = run.last_seq + len(rows)
    steered = await take_steering(connection, run.id, held.invocation_id, seq + 1)
    rows += await _append_answers(connection, held, seq, results, steered, at=at)
    seq = run.last_seq + len(rows)
    if steered and not run.cancel_requested:
        await _update_run(connection, held, last_seq=seq, last_activity_at=at, **totals.run_values())
        await _update_invocation(connection, held, **totals.invocation_values())
        return Boundary(appended=tuple(rows), steered=steered, cancel_requested=False)
    settlement = conclude(rows, run.cancel_requested, [])
    return Boundary(
        appended=tuple(rows),
        steered=steered,
        cancel_requested=run.cancel_requested,
        settlement=settlement,
        replacement=await _settle(connection, run, held, settlement, totals, last_seq=seq, at=at),
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
    """The end of an invocation that failed: `results` answer its open calls; what steers it stays, unanswered.

    A cancel that was asked for meanwhile counts: then steering is kept in the transcript, as by `end_turn`.

    Raises:
        GenerationLost: the run belongs to another worker.
    """
    run = await lock_claimed(connection, held.run_id, held.generation)
    steered: tuple[Input, ...] = ()
    if run.cancel_requested:
        steered = await take_steering(connection, run.id, held.invocation_id, run.last_seq + 1)
    rows = await _append_answers(connection, held, run.last_seq, results, steered, at=at)
    waiting = await waiting_inputs(connection, run.id)
    unanswered = [item for item in waiting if item.invocation_id == held.invocation_id]
    settlement = conclude(rows, run.cancel_requested, unanswered)
    return Boundary(
        appended=tuple(rows),
        steered=steered,
        cancel_requested=run.cancel_requested,
        settlement=settlement,
        replacement=await _settle(connection, run, held, settlement, totals, last_seq=run.last_seq + len(rows), at=at),
    )


async def _append_answers(
    connection: AsyncConnection, held: Held, seq: int, results: Sequence[Block], steered: Sequence[Input], *, at: int
) -> list[Message]:
    """One user row behind row `seq`, if there is anything to say in it."""
    if not results and not steered:
        return []
    content = user_content(results, steered)
    return [await append_user_row(connection, held.run_id, held.invocation_id, seq + 1, content, at=at)]


async def _settle(
    connection: AsyncConnection,
    run: Run,
    held: Held,
    settlement: Settlement,
    totals: Totals,
    *,
    last_seq: int,
    at: int,
) -> GivenBack | None:
    """End the invocation and the run; where a caller replaced the invocation, the run is queued with the next one."""
    status = after(RunStatus.RUNNING, settlement.event)
    values: dict[str, Any] = {"status": status, "error": settlement.error}
    replacement = replacement_of(await waiting_inputs(connection, run.id), held.invocation_id)
    if replacement is not None:
        values = {
            "status": after(RunStatus.RUNNING, RunEvent.REPLACE),
            "error": None,
            "invocation_id": replacement.invocation_id,
            "rank": replacement.created_at,
        }
    await _update_run(
        connection,
        held,
        worker_id=None,
        cancel_requested=False,
        last_seq=last_seq,
        last_activity_at=at,
        **values,
        **totals.run_values(),
    )
    await _update_invocation(
        connection,
        held,
        status=status,
        result=settlement.result,
        error=settlement.error,
        last_frame=settlement.last_frame,
        last_seq=last_seq,
        settled_at=at,
        **totals.invocation_values(),
    )
    if replacement is None:
        return None
    return GivenBack(run_id=run.id, invocation_id=replacement.invocation_id, queue=run.queue)


async def _update_run(connection: AsyncConnection, held: Held, **values: Any) -> None:
    await connection.execute(_change_run, {"run": held.run_id, **values})


async def _update_invocation(connection: AsyncConnection, held: Held, **values: Any) -> None:
    await connection.execute(_change_invocation, {"invocation": held.invocation_id, **values})
