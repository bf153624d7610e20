"""The row of a new run: queued with its first turn, or idle with a history that was brought along."""

from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from runyard.db.records import Run
from runyard.db.tables import agent_runs
from runyard.db.together import Insert
from runyard.ids import InvocationId, RunId
from runyard.priorities import Priority, rank_of
from runyard.runs import RunStatus

ZERO_COST = {"amount": 0.0, "currency": "USD", "unpriced": False}

NEW_RUN = Insert(
    table=agent_runs,
    columns=(
        *("id", "tenant_id", "user_id", "agent", "queue", "session_id", "title", "metadata", "context", "status"),
        *("generation", "rank", "priority", "invocation_id", "cancel_requested", "steps", "last_seq", "usage", "cost"),
        *("created_at", "last_activity_at"),
    ),
    unless_exists=True,
)
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


def new_run(
    *,
    run_id: RunId,
    tenant_id: str,
    user_id: str,
    agent: str,
    queue: str,
    priority: Priority,
    session_id: str | None,
    title: str | None,
    metadata: dict[str, Any] | None,
    context: dict[str, Any] | None,
    invocation_id: InvocationId | None,
    at: int,
) -> dict[str, Any]:
    """The values of `NEW_RUN`. Without an invocation the run is idle."""
    return {
        "id": run_id,
        "tenant_id": tenant_id,
        "user_id": user_id,
        "agent": agent,
        "queue": queue,
        "session_id": session_id,
        "title": title,
        "metadata": metadata or {},
        "context": context,
        "status": RunStatus.IDLE if invocation_id is None else RunStatus.QUEUED,
        "generation": 0,
        "rank": rank_of(priority, at),
        "priority": priority,
        "invocation_id": invocation_id,
        "cancel_requested": False,
        "steps": 0,
        "last_seq": 0,
        "usage": {},
        "cost": ZERO_COST,
        "created_at": at,
        "last_activity_at": at,
    }


async def lock_session(
    connection: AsyncConnection, *, tenant_id: str, user_id: str, agent: str, session_id: str
) -> Run | None:
    """The run of a user's session with an agent."""
    session = {"tenant": tenant_id, "of_agent": agent, "user": user_id, "session": session_id}
    row = (await connection.execute(_lock_session_run, session)).one_or_none()
    return None if row is None else Run(**row._mapping)
