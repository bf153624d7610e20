"""Accepting a call: one transaction that creates or continues a run. Once it is committed the run is never lost."""

from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.asyncio import AsyncConnection

from runyard.db.locks import lock_owned
from runyard.db.records import Run
from runyard.db.tables import agent_inputs, agent_invocations, agent_runs
from runyard.errors import AgentMismatch, RunBusy, RunNotFound
from runyard.ids import InputId, InvocationId, RequestId, RunId, StreamId
from runyard.runs import BUSY, RunEvent, RunStatus, after

ZERO_COST = {"amount": 0.0, "currency": "USD", "unpriced": False}

_insert_run = {
    name: insert(agent_runs).on_conflict_do_nothing().returning(agent_runs.c.id)
    for name, insert in (("postgresql", postgresql.insert), ("sqlite", sqlite.insert))
}
_insert_invocation = sa.insert(agent_invocations)
_insert_input = sa.insert(agent_inputs)
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
    run = await _run_to_continue(connection, turn)
    if run is None:
        run_id, position = turn.run_id, 1
    elif await _is_accepted(connection, turn):
        return run.id
    else:
        await _continue(connection, run, turn)
        run_id, position = run.id, await _next_position(connection, run.id)
    await connection.execute(
        _insert_invocation,
        {
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
        },
    )
    await connection.execute(
        _insert_input,
        {
            "id": turn.input_id,
            "run_id": run_id,
            "invocation_id": turn.invocation_id,
            "position": position,
            "content": turn.content,
            "created_at": turn.at,
        },
    )
    return run_id


async def _run_to_continue(connection: AsyncConnection, turn: NewTurn) -> Run | None:
    """The run, locked; None when this call created it."""
    if turn.continues is not None:
        run = await lock_owned(connection, turn.continues, tenant_id=turn.tenant_id, user_id=turn.user_id)
        if run is None:
            raise RunNotFound("Run not found", runId=turn.continues)
        return run
    if turn.session_id is not None:
        run = await _lock_session(connection, turn)
        if run is not None:
            return run
    if await _create(connection, turn):
        return None
    # Another call created the session between the two statements, or an earlier try the run: the insert has awaited
    # its commit.
    if turn.session_id is None:
        run = await lock_owned(connection, turn.run_id, tenant_id=turn.tenant_id, user_id=turn.user_id)
    else:
        run = await _lock_session(connection, turn)
    assert run is not None
    return run


async def _lock_session(connection: AsyncConnection, turn: NewTurn) -> Run | None:
    session = {"tenant": turn.tenant_id, "of_agent": turn.agent, "user": turn.user_id, "session": turn.session_id}
    row = (await connection.execute(_lock_session_run, session)).one_or_none()
    return None if row is None else Run(**row._mapping)


async def _create(connection: AsyncConnection, turn: NewTurn) -> bool:
    """Whether the row was inserted: not when the run or its session exists."""
    inserted = await connection.execute(
        _insert_run[connection.dialect.name],
        {
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
        },
    )
    return inserted.one_or_none() is not None


async def _is_accepted(connection: AsyncConnection, turn: NewTurn) -> bool:
    statement = sa.select(agent_invocations.c.id).where(agent_invocations.c.id == turn.invocation_id)
    return (await connection.execute(statement)).one_or_none() is not None


async def _continue(connection: AsyncConnection, run: Run, turn: NewTurn) -> None:
    if run.agent != turn.agent:
        raise AgentMismatch(f"The run belongs to agent {run.agent}", runId=run.id, agent=run.agent)
    if run.status in BUSY:
        raise RunBusy("The run is busy with another call", runId=run.id, status=run.status)
    values: dict[str, Any] = {
        "status": after(run.status, RunEvent.TURN),
        "rank": turn.at,
        "queue": turn.queue,
        "invocation_id": turn.invocation_id,
        "error": None,
        "last_activity_at": turn.at,
    }
    if turn.title is not None:
        values["title"] = turn.title
    if turn.metadata is not None:
        values["metadata"] = turn.metadata
    await connection.execute(sa.update(agent_runs).where(agent_runs.c.id == run.id).values(**values))


async def _next_position(connection: AsyncConnection, run_id: RunId) -> int:
    highest = sa.select(sa.func.coalesce(sa.func.max(agent_inputs.c.position), 0)).where(
        agent_inputs.c.run_id == run_id
    )
    return int((await connection.execute(highest)).scalar_one()) + 1
