"""The boundaries of a turn (`runyard.db.boundaries`) of a run without waiting inputs and without a cancel request, the
usual case: each is one statement on Postgres.

They return None in any other case, or if the run belongs to another worker. Nothing was stored then, and the
transaction of several statements finds out what it is.
"""

from collections.abc import Sequence

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from runyard.blocks import Block
from runyard.db.boundaries import (
    RUN_ANSWERED,
    RUN_SETTLED,
    Boundary,
    Conclude,
    answers,
    appended,
    left,
    settling,
)
from runyard.db.inputs import user_content
from runyard.db.locks import claimed, fence
from runyard.db.tables import agent_inputs, agent_runs
from runyard.db.together import Update, write_together
from runyard.db.transcripts import AssistantTurn, assistant_row, user_row
from runyard.db.turns import FinishedCall, Held, Totals, finishing
from runyard.runs import RunStatus, after

_seen = agent_runs.alias("seen")
_mark_seen = sa.select(_seen.c.changed_xid).where(_seen.c.id == sa.bindparam("run")).scalar_subquery()
_waits = sa.exists().where(agent_inputs.c.run_id == sa.bindparam("run"), agent_inputs.c.folded_in_seq.is_(None))
_quiet = sa.and_(
    claimed, sa.not_(agent_runs.c.cancel_requested), sa.not_(_waits), agent_runs.c.changed_xid == _mark_seen
)
"""The inputs are those of the statement's snapshot, while the UPDATE checks the row that it locks, which may be newer.
Every transaction that adds an input changes the run's row as well: if its mark is the one of the snapshot, the inputs
are those of the snapshot too."""

_RUN_ANSWERED = Update(table=agent_runs, columns=RUN_ANSWERED.columns, where=_quiet)
_RUN_SETTLED = Update(table=agent_runs, columns=RUN_SETTLED.columns, where=_quiet)


async def append_results(
    connection: AsyncConnection,
    held: Held,
    assistant_seq: int,
    *,
    finished: Sequence[FinishedCall],
    results: Sequence[Block],
    at: int,
) -> Boundary | None:
    """The tool boundary."""
    row = user_row(held.run_id, held.invocation_id, assistant_seq + 1, user_content(results, ()), at=at)
    change = {"last_seq": row.seq, "last_activity_at": at}
    is_stored = await write_together(
        connection,
        (_RUN_ANSWERED, {**fence(held.run_id, held.generation), **change}),
        *finishing(held, assistant_seq, finished, at=at),
        *appended(held, [row], ()),
    )
    return Boundary(appended=(row,), steered=(), cancel_requested=False) if is_stored else None


async def end_turn(
    connection: AsyncConnection,
    held: Held,
    *,
    turn: AssistantTurn,
    results: Sequence[Block],
    conclude: Conclude,
    totals: Totals,
    at: int,
) -> Boundary | None:
    """The terminal boundary: the invocation has ended."""
    rows = [assistant_row(held.run_id, held.invocation_id, turn, at=at)]
    rows += answers(held, turn.seq, results, (), at=at)
    last_seq = rows[-1].seq
    settlement = conclude(rows, False, [])  # noqa: FBT003 - it is not cancelled
    change = {"status": after(RunStatus.RUNNING, settlement.event), "error": settlement.error}
    is_stored = await write_together(
        connection,
        (_RUN_SETTLED, {**fence(held.run_id, held.generation), **change, **left(last_seq, totals, at=at)}),
        *appended(held, rows, ()),
        settling(held, settlement, rows, last_seq, totals, at=at),
    )
    if not is_stored:
        return None
    return Boundary(appended=tuple(rows), steered=(), cancel_requested=False, settlement=settlement)
