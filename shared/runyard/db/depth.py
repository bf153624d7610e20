"""What the rows say about the depth of queues: how many runs have which status, and which workers there are."""

from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from runyard.db.limits import ANY_NUMBER, NO_LIMITS, Limits
from runyard.db.tables import QUEUED, RUNNING, WAITING, agent_manifests, agent_runs, workers
from runyard.ids import WorkerId
from runyard.priorities import PENALTY_MS, Priority
from runyard.runs import RunStatus


@dataclass(frozen=True, kw_only=True, slots=True)
class Load:
    """How many runs of one tenant, agent and priority class have one status.

    `since`: for queued runs, when the one that waits longest was accepted or last given back, in epoch milliseconds;
    None for other statuses. `claimable_since`: the same among those whose users may have one more running.
    """

    queue: str
    agent: str
    tenant_id: str
    status: RunStatus
    priority: Priority
    runs: int
    since: int | None
    claimable_since: int | None


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkerRow:
    """A worker's row. It may be left by a dead worker: only a rising beat shows that the worker lives."""

    id: WorkerId
    beat: int
    slots: int
    queues: tuple[str, ...]
    agents: tuple[str, ...]
    draining: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Census:
    """The rows at one moment. `queues`: those of agents that a worker has had lately."""

    loads: tuple[Load, ...]
    workers: tuple[WorkerRow, ...]
    queues: tuple[str, ...]


def _loads_of(
    status: sa.ColumnElement[str], since: sa.ColumnElement[Any], claimable_since: sa.ColumnElement[Any]
) -> sa.Select[Any]:
    return (
        sa.select(
            agent_runs.c.queue,
            agent_runs.c.agent,
            agent_runs.c.tenant_id,
            agent_runs.c.priority,
            status.label("status"),
            sa.func.count().label("runs"),
            since.label("since"),
            claimable_since.label("claimable_since"),
        )
        .where(agent_runs.c.status == status)
        .group_by(agent_runs.c.queue, agent_runs.c.agent, agent_runs.c.tenant_id, agent_runs.c.priority)
    )


_nothing = sa.cast(sa.null(), sa.BigInteger)
_penalty = sa.case(
    *((agent_runs.c.priority == sa.literal_column(f"'{name}'", sa.Text), ms) for name, ms in PENALTY_MS.items()),
    else_=0,
)
_accepted_at = agent_runs.c.rank - _penalty
_waits_since = sa.case((agent_runs.c.requeued_at > _accepted_at, agent_runs.c.requeued_at), else_=_accepted_at)
_running = agent_runs.alias("running")
_full_users = (  # few, since each of them has running runs
    sa.select(_running.c.tenant_id, _running.c.user_id)
    .where(_running.c.status == RUNNING)
    .group_by(_running.c.tenant_id, _running.c.user_id)
    .having(sa.func.count() >= sa.bindparam("per_user", type_=sa.Integer))
)
_may_run = sa.tuple_(agent_runs.c.tenant_id, agent_runs.c.user_id).not_in(_full_users)
_loads = sa.union_all(
    _loads_of(QUEUED, sa.func.min(_waits_since), sa.func.min(sa.case((_may_run, _waits_since)))),
    _loads_of(RUNNING, _nothing, _nothing),
    _loads_of(WAITING, _nothing, _nothing),
)
_workers = sa.select(
    workers.c.id, workers.c.beat, workers.c.slots, workers.c.queues, workers.c.agents, workers.c.draining
)
_beats = sa.select(workers.c.id, workers.c.beat)
_manifests = sa.select(agent_manifests.c.manifest).where(agent_manifests.c.last_seen >= sa.bindparam("seen_since"))


async def take_census(connection: AsyncConnection, *, seen_since: int, limits: Limits = NO_LIMITS) -> Census:
    """To be run with `Database.snapshot`, so that all of it is of one moment."""
    loads = [
        Load(**{**row._mapping, "status": RunStatus(row.status), "priority": Priority.stored(row.priority)})
        for row in await connection.execute(_loads, {"per_user": limits.per_user or ANY_NUMBER})
    ]
    rows = await read_workers(connection)
    manifests = await connection.execute(_manifests, {"seen_since": seen_since})
    queues = {row.manifest["queue"] for row in manifests}
    return Census(loads=tuple(loads), workers=tuple(rows), queues=tuple(sorted(queues)))


async def read_workers(connection: AsyncConnection) -> list[WorkerRow]:
    return [
        WorkerRow(**{**row._mapping, "queues": tuple(row.queues), "agents": tuple(row.agents)})
        for row in await connection.execute(_workers)
    ]


async def read_beats(connection: AsyncConnection) -> dict[WorkerId, int]:
    return {row.id: row.beat for row in await connection.execute(_beats)}
