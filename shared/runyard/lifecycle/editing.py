"""Changes of a run by hand: its title and metadata, its history, its deletion."""

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from runyard.db.changes import tell_deleted
from runyard.db.erasure import delete_runs, delete_transcripts
from runyard.db.locks import lock_owned
from runyard.db.records import Message, Run
from runyard.db.scope import Scope
from runyard.db.tables import agent_messages, agent_runs
from runyard.errors import RunBusy, RunNotFound
from runyard.history import HistoryMessage, check_history
from runyard.runs import AT_REST

_transcript = (
    sa.select(agent_messages.c.role, agent_messages.c.content)
    .where(agent_messages.c.run_id == sa.bindparam("run"))
    .order_by(agent_messages.c.seq)
)


async def describe_run(
    connection: AsyncConnection, run_id: str, scope: Scope, *, values: dict[str, Any], at: int
) -> Run:
    """Set the `title` or the `metadata`, or both, as given in `values`.

    Raises:
        RunNotFound: unknown, or not this caller's.
    """
    run = await _locked(connection, run_id, scope)
    return await _change(connection, run, last_activity_at=at, **values)


async def append_messages(
    connection: AsyncConnection, run_id: str, scope: Scope, messages: Sequence[HistoryMessage], *, at: int
) -> list[Message]:
    """Append messages to the transcript; returns the stored rows.

    Raises:
        RunNotFound: unknown, or not this caller's.
        RunBusy: an invocation is in progress.
        InvalidArgs: the messages cannot follow the transcript.
    """
    run = await _editable(connection, run_id, scope)
    await check_fits(connection, run, messages)
    changed = await store_history(connection, run, messages, at=at)
    rows = await connection.execute(
        sa.select(agent_messages)
        .where(agent_messages.c.run_id == run.id, agent_messages.c.seq > run.last_seq)
        .order_by(agent_messages.c.seq)
    )
    found = [Message(**row._mapping) for row in rows]
    assert len(found) == changed.last_seq - run.last_seq
    return found


async def clear_messages(connection: AsyncConnection, run_id: str, scope: Scope, *, at: int) -> list[str]:
    """Delete the transcript with its inputs, calls and invocations. The run keeps its id, session, title and costs.
    Returns the ids of its streams, which can be deleted.

    Raises:
        RunNotFound: unknown, or not this caller's.
        RunBusy: an invocation is in progress.
    """
    run = await _editable(connection, run_id, scope)
    streams = await delete_transcripts(connection, [run])
    await tell_deleted(connection, [run], whole_run=False, at=at)
    await _change(
        connection, run, invocation_id=None, last_seq=0, clears=run.clears + 1, error=None, last_activity_at=at
    )
    return streams


async def erase_run(connection: AsyncConnection, run_id: str, scope: Scope, *, at: int) -> list[str]:
    """Delete the run and all that belongs to it. Returns the ids of its streams, which can be deleted.

    Raises:
        RunNotFound: unknown, or not this caller's.
        RunBusy: an invocation is in progress.
    """
    run = await _editable(connection, run_id, scope)
    return await delete_runs(connection, [run], at=at)


async def check_fits(connection: AsyncConnection, run: Run, messages: Sequence[HistoryMessage]) -> None:
    """Raises `InvalidArgs` for messages that cannot follow the transcript. The caller holds the run lock."""
    rows = await connection.execute(_transcript, {"run": run.id})
    check_history(messages, behind=[HistoryMessage(role=row.role, content=row.content) for row in rows])


async def store_history(connection: AsyncConnection, run: Run, messages: Sequence[HistoryMessage], *, at: int) -> Run:
    """Append messages that belong to no invocation and were checked before. The caller holds the run lock."""
    if not messages:
        return run
    rows = [
        {"run_id": run.id, "seq": seq, "role": message.role, "content": message.content, "created_at": at}
        for seq, message in enumerate(messages, run.last_seq + 1)
    ]
    await connection.execute(sa.insert(agent_messages), rows)
    return await _change(connection, run, last_seq=run.last_seq + len(rows), last_activity_at=at)


async def _locked(connection: AsyncConnection, run_id: str, scope: Scope) -> Run:
    run = await lock_owned(connection, run_id, scope)
    if run is None:
        raise RunNotFound("Run not found", runId=run_id)
    return run


async def _editable(connection: AsyncConnection, run_id: str, scope: Scope) -> Run:
    run = await _locked(connection, run_id, scope)
    if run.status not in AT_REST:
        raise RunBusy("The run is busy with a call", runId=run.id, status=run.status)
    return run


async def _change(connection: AsyncConnection, run: Run, **values: Any) -> Run:
    changed = await connection.execute(
        sa.update(agent_runs).where(agent_runs.c.id == run.id).values(**values).returning(agent_runs)
    )
    return Run(**changed.one()._mapping)
