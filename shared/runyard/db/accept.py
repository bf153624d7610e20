"""Accepting a call: one transaction that creates or continues a run. Once it is committed the run is never lost."""

from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from runyard.db.locks import lock_owned
from runyard.db.records import Run
from runyard.db.tables import agent_inputs, agent_invocations, agent_runs
from runyard.db.together import Insert, Update, Values, Write, write_together
from runyard.errors import AgentMismatch, RunBusy, RunNotFound
from runyard.ids import InputId, InvocationId, RequestId, RunId, StreamId
from runyard.runs import BUSY, RunEvent, RunStatus, after

ZERO_COST = {"amount": 0.0, "currency": "USD", "unpriced": False}

_NEW_RUN = Insert(
    table=agent_runs,
    columns=(
        *("id", "tenant_id", "user_id", "agent", "queue", "session_id", "title", "metadata", "status", "generation"),
        *("rank", "invocation_id", "steps", "last_seq", "usage", "cost", "created_at", "last_activity_at"),
    ),
    unless_exists=True,
)
_CONTINUED_RUN = Update(
    table=agent_runs,
    columns=("status", "rank", "queue", "invocation_id", "error", "title", "metadata", "last_activity_at"),
    where=agent_runs.c.id == sa.bindparam("run"),
)
_NEW_INVOCATION = Insert(
    table=agent_invocations,
    columns=(
        *("id", "run_id", "stream_id", "request_id", "status", "roles", "options", "steps", "usage", "cost", "deaths"),
        *("stream_closed", "created_at"),
    ),
)
_NEW_INPUT = Insert(table=agent_inputs, columns=("id", "run_id", "invocation_id", "position", "content", "created_at"))
_lock_session_run = (
    sa.select(agent_runs)
    .where(
        agent_runs.c.tenant_id == sa.bindparam("tenant"),
        agent_runs.c.agent == sa.bindparam("of_agent"),
        agent_runs.c.user_id == sa.bindparam("user"),
        agent_runs.c.session_id == sa.bindparam("session"),
    )
    .with_for_update()
)


@dataclass(frozen=True, kw_only=True, slots=True)
class NewTurn:
    """A checked call, its text clean (`runyard.text`).

    Its ids are made by whoever accepts it, so that after a commit of unknown outcome it can be accepted again.
    """

    tenant_id: str
    user_id: str
    agent: str
    queue: str
    content: str | list[dict[str, Any]]
    roles: tuple[str, ...]
    options: dict[str, Any]
    run_id: RunId
    invocation_id: InvocationId
    input_id: InputId
    stream_id: StreamId
    request_id: RequestId
    at: int
    continues: str | None = None
    session_id: str | None = None
    title: str | None = None
    metadata: dict[str, Any] | None = None


async def accept_turn(connection: AsyncConnection, turn: NewTurn) -> RunId:
    """Create a run, or continue the one that `continues` or `session_id` names.

    After a commit of unknown outcome, accept the same turn again: this waits until the first transaction has ended,
    finds what it committed, and accepts the turn only if it committed nothing.

    Raises:
        RunNotFound: `continues` names no run of this user.
        AgentMismatch: the run belongs to another agent.
        RunBusy: an invocation is in progress.
    """
    run = await _find(connection, turn)
    if run is None:
        if await _create(connection, turn):
            return turn.run_id
        run = await _find_created(connection, turn)
    if not await _is_accepted(connection, turn):
        await _continue(connection, run, turn)
    return run.id


async def _find(connection: AsyncConnection, turn: NewTurn) -> Run | None:
    """The run to continue, locked; None when this call has to create it."""
    if turn.continues is not None:
        run = await lock_owned(connection, turn.continues, tenant_id=turn.tenant_id, user_id=turn.user_id)
        if run is None:
            raise RunNotFound("Run not found", runId=turn.continues)
        return run
    if turn.session_id is not None:
        return await _lock_session(connection, turn)
    return None


async def _find_created(connection: AsyncConnection, turn: NewTurn) -> Run:
    """The run that kept this call from creating one, locked: the insert has awaited its commit.

    Another call created the session between the two statements, or an earlier try of this call the run.
    """
    if turn.session_id is not None:
        run = await _lock_session(connection, turn)
    else:
        run = await lock_owned(connection, turn.run_id, tenant_id=turn.tenant_id, user_id=turn.user_id)
    assert run is not None
    return run


async def _lock_session(connection: AsyncConnection, turn: NewTurn) -> Run | None:
    session = {"tenant": turn.tenant_id, "of_agent": turn.agent, "user": turn.user_id, "session": turn.session_id}
    row = (await connection.execute(_lock_session_run, session)).one_or_none()
    return None if row is None else Run(**row._mapping)


async def _create(connection: AsyncConnection, turn: NewTurn) -> bool:
    """Whether the rows were inserted: not when the run or its session exists."""
    run = {
        "id": turn.run_id,
        "tenant_id": turn.tenant_id,
        "user_id": turn.user_id,
        "agent": turn.agent,
        "queue": turn.queue,
        "session_id": turn.session_id,
        "title": turn.title,
        "metadata": turn.metadata or {},
        "status": RunStatus.QUEUED,
        "generation": 0,
        "rank": turn.at,
        "invocation_id": turn.invocation_id,
        "steps": 0,
        "last_seq": 0,
        "usage": {},
        "cost": ZERO_COST,
        "created_at": turn.at,
        "last_activity_at": turn.at,
    }
    return await write_together(connection, (_NEW_RUN, run), *_invocation_and_input(turn, turn.run_id, position=1))


def _invocation_and_input(turn: NewTurn, run_id: RunId, *, position: int) -> list[tuple[Write, Values]]:
    invocation = {
        "id": turn.invocation_id,
        "run_id": run_id,
        "stream_id": turn.stream_id,
        "request_id": turn.request_id,
        "status": RunStatus.QUEUED,
        "roles": list(turn.roles),
        "options": turn.options,
        "steps": 0,
        "usage": {},
        "cost": ZERO_COST,
        "deaths": [],
        "stream_closed": False,
        "created_at": turn.at,
    }
    opening = {
        "id": turn.input_id,
        "run_id": run_id,
        "invocation_id": turn.invocation_id,
        "position": position,
        "content": turn.content,
        "created_at": turn.at,
    }
    return [(_NEW_INVOCATION, invocation), (_NEW_INPUT, opening)]


async def _is_accepted(connection: AsyncConnection, turn: NewTurn) -> bool:
    statement = sa.select(agent_invocations.c.id).where(agent_invocations.c.id == turn.invocation_id)
    return (await connection.execute(statement)).one_or_none() is not None


async def _continue(connection: AsyncConnection, run: Run, turn: NewTurn) -> None:
    if run.agent != turn.agent:
        raise AgentMismatch(f"The run belongs to agent {run.agent}", runId=run.id, agent=run.agent)
    if run.status in BUSY:
        raise RunBusy("The run is busy with another call", runId=run.id, status=run.status)
    changes = {
        "run": run.id,
        "status": after(run.status, RunEvent.TURN),
        "rank": turn.at,
        "queue": turn.queue,
        "invocation_id": turn.invocation_id,
        "error": None,
        "title": run.title if turn.title is None else turn.title,
        "metadata": run.metadata if turn.metadata is None else turn.metadata,
        "last_activity_at": turn.at,
    }
    position = await _next_position(connection, run.id)
    await write_together(connection, (_CONTINUED_RUN, changes), *_invocation_and_input(turn, run.id, position=position))


async def _next_position(connection: AsyncConnection, run_id: RunId) -> int:
    highest = sa.select(sa.func.coalesce(sa.func.max(agent_inputs.c.position), 0)).where(
        agent_inputs.c.run_id == run_id
    )
    return int((await connection.execute(highest)).scalar_one()) + 1
