"""The rows of runs at one moment: each page of them is one read transaction."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from runyard.db.records import Call, Input, Invocation, Message, Run
from runyard.db.tables import agent_calls, agent_inputs, agent_invocations, agent_messages, agent_runs, workers
from runyard.fsck.findings import Code, Finding
from runyard.runs import BUSY, RunStatus

RUNS_A_PAGE = 100
ROWS_A_PAGE = 1_000
"""Rows of transcripts: a page of long runs has fewer runs, but at least one, however long."""


SHAPE_ERRORS = (LookupError, TypeError, ValueError, AttributeError)
"""What a check meets in rows whose JSON this version would not write."""


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """All rows of one run. `has_worker`: the worker that it names has a row."""

    run: Run
    has_worker: bool
    invocations: Sequence[Invocation]
    messages: Sequence[Message]
    inputs: Sequence[Input]
    calls: Sequence[Call]

    @cached_property
    def _by_id(self) -> dict[str | None, Invocation]:
        return {invocation.id: invocation for invocation in self.invocations}

    @property
    def newest(self) -> Invocation | None:
        """The invocation that the run's row names."""
        return self.invocation_of(self.run)

    def invocation_of(self, row: Run | Message | Input) -> Invocation | None:
        """The invocation that this row names. History that a caller brought along names none."""
        return self._by_id.get(row.invocation_id)

    def may_be_open(self, row: Message) -> bool:
        """Whether calls of this row may still be without results, since the run is working on them."""
        at_work = self.run.status in BUSY or self.run.status is RunStatus.WAITING
        return at_work and row is self.messages[-1] and row.invocation_id == self.run.invocation_id

    def finding(self, code: Code, detail: str, invocation: Invocation | None = None) -> Finding:
        return Finding(
            code=code,
            detail=detail,
            run_id=self.run.id,
            invocation_id=None if invocation is None else invocation.id,
            stream_id=None if invocation is None else invocation.stream_id,
        )

    def unreadable(self, error: Exception, invocation: Invocation | None = None) -> Finding:
        detail = f"its rows do not have the shape that this version writes ({type(error).__name__})"
        return self.finding(Code.ROWS_UNREADABLE, detail, invocation)


_columns = (*agent_runs.c, workers.c.id.label("found_worker"))
_runs = sa.select(*_columns).outerjoin(workers, workers.c.id == agent_runs.c.worker_id).order_by(agent_runs.c.id)
_some_runs = _runs.where(agent_runs.c.id.in_(sa.bindparam("runs", expanding=True)))
_page = (
    sa.select(agent_runs.c.id, agent_runs.c.last_seq)
    .where(agent_runs.c.id > sa.bindparam("after"), agent_runs.c.last_activity_at >= sa.bindparam("since"))
    .order_by(agent_runs.c.id)
    .limit(RUNS_A_PAGE)
)


def _of_runs(table: sa.Table, *order: str) -> sa.Select[tuple[object, ...]]:
    return (
        sa.select(table)
        .where(table.c.run_id.in_(sa.bindparam("runs", expanding=True)))
        .order_by(table.c.run_id, *(table.c[name] for name in order))
    )


_invocations = _of_runs(agent_invocations, "created_at", "id")
_messages = _of_runs(agent_messages, "seq")
_inputs = _of_runs(agent_inputs, "position")
_calls = _of_runs(agent_calls, "assistant_seq", "index")


async def page_of_runs(connection: AsyncConnection, *, after: str, since_ms: int) -> list[Snapshot]:
    """The next runs by id that were active since then, one page of them; empty: there are none."""
    ids: list[str] = []
    rows = 0
    for run in await connection.execute(_page, {"after": after, "since": since_ms}):
        rows += run.last_seq
        if ids and rows > ROWS_A_PAGE:
            break
        ids.append(run.id)
    return await some_runs(connection, ids) if ids else []


async def some_runs(connection: AsyncConnection, run_ids: Sequence[str]) -> list[Snapshot]:
    """By id; runs that do not exist are left out."""
    parameters = {"runs": list(run_ids)}
    invocations, messages, inputs, calls = (
        defaultdict[str, list[Invocation]](list),
        defaultdict[str, list[Message]](list),
        defaultdict[str, list[Input]](list),
        defaultdict[str, list[Call]](list),
    )
    runs = (await connection.execute(_some_runs, parameters)).all()
    for row in await connection.execute(_invocations, parameters):
        invocations[row.run_id].append(Invocation(**row._mapping))
    for row in await connection.execute(_messages, parameters):
        messages[row.run_id].append(Message(**row._mapping))
    for row in await connection.execute(_inputs, parameters):
        inputs[row.run_id].append(Input(**row._mapping))
    for row in await connection.execute(_calls, parameters):
        calls[row.run_id].append(Call(**row._mapping))
    snapshots = []
    for row in runs:
        columns = dict(row._mapping)
        found_worker = columns.pop("found_worker")
        run = Run(**columns)
        snapshots.append(
            Snapshot(
                run=run,
                has_worker=found_worker is not None,
                invocations=invocations[run.id],
                messages=messages[run.id],
                inputs=inputs[run.id],
                calls=calls[run.id],
            )
        )
    return snapshots
