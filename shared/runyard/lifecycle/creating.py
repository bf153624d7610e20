"""Creating a run: queued with its first turn, or idle and perhaps with a history from elsewhere."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from runyard.db.locks import lock_owned
from runyard.db.records import Run
from runyard.db.scope import Scope
from runyard.db.tables import agent_runs
from runyard.db.together import Insert, write_together
from runyard.errors import InvalidArgs
from runyard.history import HistoryMessage, check_history
from runyard.ids import InvocationId, RunId
from runyard.lifecycle.editing import store_history
from runyard.lifecycle.new_turn import NewTurn
from runyard.priorities import Priority, rank_of
from runyard.runs import RunStatus

NO_USAGE = {
    "input_tokens": 0,
    "output_tokens": 0,
    "cache_creation_input_tokens": 0,
    "cache_read_input_tokens": 0,
}
"""The usage of a new run or invocation. `output_tokens_estimated` is added once a model call was broken off."""

ZERO_COST = {"amount": 0.0, "currency": "USD", "unpriced": False}

SESSION_MAX_BYTES = 2600
"""Of the four names by which a session is found. Postgres' index takes rows of 2704 bytes, with what is around them."""

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


@dataclass(frozen=True, kw_only=True, slots=True)
class NewRun:
    """A run that is created without a call on it. It stays idle until it gets one.

    Its text is clean (`runyard.text`). The gateway makes its id, so that it can create the same run again after a
    commit of unknown outcome.
    """

    run_id: RunId
    tenant_id: str
    user_id: str
    agent: str
    queue: str
    priority: Priority
    session_id: str | None
    title: str | None
    metadata: dict[str, Any] | None
    context: dict[str, Any] | None
    history: Sequence[HistoryMessage]
    at: int


async def create_idle_run(connection: AsyncConnection, new: NewRun) -> tuple[Run, bool]:
    """Returns the run, and whether this call created it. A run that the session already has is returned unchanged.

    Raises:
        InvalidArgs: the history could not be sent to a model, or the session already has a run with its own history.
    """
    check_history(new.history)
    inserted = await write_together(connection, (NEW_RUN, new_run(new, invocation_id=None)))
    run = await lock_owned(connection, new.run_id, Scope.of_user(new.tenant_id, new.user_id))
    if run is None:
        run = await lock_session(connection, new)
        assert run is not None, "the insert was refused because it exists"
        if new.history:
            raise InvalidArgs(
                f"the session has a run already, {run.id}: append to it", fields=["messages", "sessionId"], runId=run.id
            )
    if inserted:
        run = await store_history(connection, run, new.history, at=new.at)
    return run, run.id == new.run_id


def new_run(new: NewRun | NewTurn, *, invocation_id: InvocationId | None) -> dict[str, Any]:
    """The values of `NEW_RUN`. Without an invocation the run is idle.

    Raises:
        InvalidArgs: the session's name is too long for its index.
    """
    _check_session(new)
    return {
        "id": new.run_id,
        "tenant_id": new.tenant_id,
        "user_id": new.user_id,
        "agent": new.agent,
        "queue": new.queue,
        "session_id": new.session_id,
        "title": new.title,
        "metadata": new.metadata or {},
        "context": new.context,
        "status": RunStatus.IDLE if invocation_id is None else RunStatus.QUEUED,
        "generation": 0,
        "rank": rank_of(new.priority, new.at),
        "priority": new.priority,
        "invocation_id": invocation_id,
        "cancel_requested": False,
        "steps": 0,
        "last_seq": 0,
        "usage": NO_USAGE,
        "cost": ZERO_COST,
        "created_at": new.at,
        "last_activity_at": new.at,
    }


def _check_session(new: NewRun | NewTurn) -> None:
    if new.session_id is None:
        return
    session = (new.tenant_id, new.agent, new.user_id, new.session_id)
    size_bytes = sum(len(name.encode()) for name in session)
    if size_bytes > SESSION_MAX_BYTES:
        raise InvalidArgs(
            f"sessionId is too long: it has {size_bytes} bytes together with the names of tenant, user and agent, "
            f"and {SESSION_MAX_BYTES} are allowed",
            fields=["sessionId"],
        )


async def lock_session(connection: AsyncConnection, new: NewRun | NewTurn) -> Run | None:
    """Lock the run of this user's session with this agent. None: the session has no run."""
    assert new.session_id is not None
    session = {"tenant": new.tenant_id, "of_agent": new.agent, "user": new.user_id, "session": new.session_id}
    row = (await connection.execute(_lock_session_run, session)).one_or_none()
    return None if row is None else Run(**row._mapping)
