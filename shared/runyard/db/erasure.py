"""Deleting runs and all that belongs to them. The caller holds the runs' locks."""

from collections.abc import Sequence

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from runyard.db.changes import tell_deleted
from runyard.db.records import Run
from runyard.db.tables import (
    agent_calls,
    agent_inputs,
    agent_invocations,
    agent_messages,
    agent_runs,
    idempotency_keys,
)

_OF_A_TRANSCRIPT = (agent_calls, agent_inputs, agent_messages, agent_invocations)

_runs: sa.BindParameter[list[str]] = sa.bindparam("runs", expanding=True)
_streams = sa.select(agent_invocations.c.stream_id).where(agent_invocations.c.run_id.in_(_runs))
_deletes = [sa.delete(table).where(table.c.run_id.in_(_runs)) for table in _OF_A_TRANSCRIPT]
_delete_keys = sa.delete(idempotency_keys).where(idempotency_keys.c.run_id.in_(_runs))
_delete_runs = sa.delete(agent_runs).where(agent_runs.c.id.in_(_runs))


async def delete_transcripts(connection: AsyncConnection, runs: Sequence[Run]) -> list[str]:
    """Delete everything of these runs except their own rows and the keys of their calls: a call that is sent again with
    its key must not be made again. Returns the ids of their streams, which can be deleted.
    """
    of_these = {"runs": [run.id for run in runs]}
    streams = list((await connection.execute(_streams, of_these)).scalars())
    for delete in _deletes:
        await connection.execute(delete, of_these)
    return streams


async def delete_runs(connection: AsyncConnection, runs: Sequence[Run], *, at: int) -> list[str]:
    """Delete these runs and all that belongs to them, and tell the feed. Returns the ids of their
    streams, which can be deleted.
    """
    streams = await delete_transcripts(connection, runs)
    await tell_deleted(connection, runs, whole_run=True, at=at)
    for delete in (_delete_keys, _delete_runs):
        await connection.execute(delete, {"runs": [run.id for run in runs]})
    return streams
