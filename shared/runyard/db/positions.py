"""The positions of queued calls among those that wait for a worker."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from runyard.db.tables import QUEUED, agent_invocations, agent_runs

POSITION_MAX = 100
"""From here on a position is only a lower bound, so that the cost of counting does not grow with the backlog."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """The position of a queued call among those of the same queue, agent and tenant, in the order of claims: from 1
    (the next one) to `POSITION_MAX`.
    """

    queue: str
    agent: str
    tenant_id: str
    user_id: str
    position: int


def _statement() -> sa.Select[Any]:
    ahead = agent_runs.alias("ahead")
    counted = (
        sa.select(sa.literal_column("1").label("one"))
        .where(
            ahead.c.status == QUEUED,
            ahead.c.queue == agent_runs.c.queue,
            ahead.c.agent == agent_runs.c.agent,
            ahead.c.tenant_id == agent_runs.c.tenant_id,
            sa.tuple_(ahead.c.rank, ahead.c.id) <= sa.tuple_(agent_runs.c.rank, agent_runs.c.id),
        )
        .limit(POSITION_MAX)
        .correlate(agent_runs)
        .subquery()
    )
    position = sa.select(sa.func.count()).select_from(counted).scalar_subquery()
    return (
        sa.select(
            agent_invocations.c.stream_id,
            agent_runs.c.queue,
            agent_runs.c.agent,
            agent_runs.c.tenant_id,
            agent_runs.c.user_id,
            position.label("position"),
        )
        .join(agent_runs, agent_runs.c.id == agent_invocations.c.run_id)
        .where(
            agent_invocations.c.stream_id.in_(sa.bindparam("streams", expanding=True)),
            agent_runs.c.invocation_id == agent_invocations.c.id,
            agent_runs.c.status == QUEUED,
        )
    )


_positions = _statement()


async def queue_positions(connection: AsyncConnection, stream_ids: Sequence[str]) -> dict[str, Place]:
    """By stream; streams whose runs are not queued are left out."""
    places = {}
    for row in await connection.execute(_positions, {"streams": list(stream_ids)}):
        columns = dict(row._mapping)
        stream_id = columns.pop("stream_id")
        places[stream_id] = Place(**columns)
    return places
