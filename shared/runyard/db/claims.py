"""Claiming: a worker with a free slot takes the best queued row of its queues and agents.

Best is the tenant with the fewest running runs, then its lowest rank. The groups (queue, agent, tenant) are found by a
loose index scan: one index probe a group, whatever the number of queued rows.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from runyard.clock import now_ms
from runyard.db.engine import Database
from runyard.db.inputs import fold_opening
from runyard.db.records import Input, Invocation, Message, Run
from runyard.db.tables import QUEUED, RUNNING, agent_invocations, agent_runs
from runyard.db.together import Update, write_returning
from runyard.db.transcripts import appending
from runyard.db.turns import Totals
from runyard.errors import WorkerGone
from runyard.ids import InvocationId, RunId, WorkerId
from runyard.runs import RunEvent, RunStatus, after

GROUP_ORDER = ("queue", "agent", "tenant_id", "rank", "id")


@dataclass(frozen=True, kw_only=True, slots=True)
class Group:
    """Queued rows that differ only in rank: the first of them is next."""

    queue: str
    agent: str
    tenant_id: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Claim:
    """A run that belongs to this worker now, as its rows are.

    `folded`: the inputs that this claim put into the transcript; `appended`: the row that holds them.
    """

    run: Run
    invocation: Invocation
    folded: tuple[Input, ...]
    appended: Message | None

    @property
    def is_takeover(self) -> bool:
        """Another worker (or this one, before) had begun the invocation."""
        return not self.folded

    @property
    def transcript(self) -> list[Message] | None:
        """All of it, where this claim wrote its first row; None: it has to be read."""
        return [self.appended] if self.appended is not None and self.appended.seq == 1 else None


@dataclass(frozen=True, kw_only=True, slots=True)
class GivenBack:
    """What the message for the next worker names."""

    run_id: RunId
    invocation_id: InvocationId
    queue: str


def _groups_statement() -> sa.Select[tuple[str, str, str]]:
    queued = agent_runs.alias("queued")
    order = [queued.c[name] for name in GROUP_ORDER]
    first = sa.select(queued.c.id).where(queued.c.status == QUEUED).order_by(*order).limit(1)
    heads = sa.select(first.scalar_subquery().label("id")).cte("heads", recursive=True)
    head = agent_runs.alias("head")
    following = (
        sa.select(queued.c.id)
        .where(
            queued.c.status == QUEUED,
            sa.tuple_(queued.c.queue, queued.c.agent, queued.c.tenant_id)
            > sa.tuple_(_value(head.c.queue), _value(head.c.agent), _value(head.c.tenant_id)),
        )
        .order_by(*order)
        .limit(1)
        .correlate(head)
    )
    heads = heads.union_all(
        sa.select(following.scalar_subquery()).select_from(heads.join(head, head.c.id == heads.c.id))
    )
    running = agent_runs.alias("running")
    busy = (
        sa.select(sa.func.count())
        .select_from(running)
        .where(running.c.status == RUNNING, running.c.tenant_id == agent_runs.c.tenant_id)
        .scalar_subquery()
    )
    return (
        sa.select(agent_runs.c.queue, agent_runs.c.agent, agent_runs.c.tenant_id)
        .select_from(heads.join(agent_runs, agent_runs.c.id == heads.c.id))
        .where(
            agent_runs.c.queue.in_(sa.bindparam("queues", expanding=True)),
            agent_runs.c.agent.in_(sa.bindparam("agents", expanding=True)),
        )
        .order_by(busy, agent_runs.c.rank, agent_runs.c.id)
    )


def _value(column: sa.ColumnElement[str]) -> sa.ColumnElement[str]:
    # SQLite finds a row of values in an index only if the comparison has the index's affinity. Two columns compare
    # without any, and only the first would be searched; the outcome of `||` takes the other side's.
    # https://www.sqlite.org/datatype3.html#affinity_of_comparison_operands
    return column.concat(sa.literal_column("''", sa.Text))


_groups = _groups_statement()
_best_of_group = (
    sa.select(agent_runs)
    .where(
        agent_runs.c.status == QUEUED,
        agent_runs.c.queue == sa.bindparam("queue"),
        agent_runs.c.agent == sa.bindparam("agent"),
        agent_runs.c.tenant_id == sa.bindparam("tenant_id"),
    )
    .order_by(agent_runs.c.rank, agent_runs.c.id)
    .limit(1)
)
_skip_locked = _best_of_group.with_for_update(skip_locked=True)
_wait_locked = _best_of_group.with_for_update()
_RUN_CLAIMED = Update(
    table=agent_runs,
    columns=("status", "worker_id", "generation", "agent_version", "last_seq", "last_activity_at"),
    where=agent_runs.c.id == sa.bindparam("run"),
)
_INVOCATION_CLAIMED = Update(
    table=agent_invocations,
    columns=("status",),
    where=agent_invocations.c.id == sa.bindparam("invocation"),
    computed={
        "started_at": sa.func.coalesce(agent_invocations.c.started_at, sa.bindparam("at")),
        "redis_run_id": sa.func.coalesce(agent_invocations.c.redis_run_id, sa.bindparam("redis")),
    },
    returning=True,
)


async def claim_best(
    database: Database,
    *,
    worker_id: WorkerId,
    queues: Sequence[str],
    agents: dict[str, str],
    redis_run_id: str,
    at: int,
) -> Claim | None:
    """The best queued run, now running here; None when nothing is queued for this worker.

    Args:
        agents: the worker's agents and their versions.
        redis_run_id: the Redis process that will hold the invocation's first frame.

    Raises:
        WorkerGone: this worker's row is gone.
        StoreUnavailable, CommitUnknown: see `Database.write`; a run claimed by a commit of unknown outcome is given
            back by the beat, which finds it under this worker with nobody running it.
    """
    while True:
        groups = await database.read(queued_groups, queues, list(agents))
        if not groups:
            return None
        claim = await database.write(take, groups, worker_id=worker_id, agents=agents, redis_run_id=redis_run_id, at=at)
        if claim is not None:
            return claim


async def queued_groups(connection: AsyncConnection, queues: Sequence[str], agents: Sequence[str]) -> list[Group]:
    """Groups with queued rows, the best first."""
    rows = await connection.execute(_groups, {"queues": list(queues), "agents": list(agents)})
    return [Group(queue=row.queue, agent=row.agent, tenant_id=row.tenant_id) for row in rows]


async def take(
    connection: AsyncConnection,
    groups: Sequence[Group],
    *,
    worker_id: WorkerId,
    agents: dict[str, str],
    redis_run_id: str,
    at: int,
) -> Claim | None:
    """Take the first row of the first group that has one, and fold what opens it, in the caller's transaction.

    Rows that others hold are skipped. When all are held, it waits for the best one's holder: a holder that does not
    take its row leaves it to us. None: every row was taken meanwhile; look again.

    Raises:
        WorkerGone: this worker's row is gone.
    """
    queued = await _lock_first(connection, _skip_locked, groups)
    if queued is None:
        queued = await _lock_first(connection, _wait_locked, groups[:1])
    if queued is None:
        return None
    folded, appended = await fold_opening(connection, queued, at=at)
    claimed: dict[str, Any] = {
        "status": after(queued.status, RunEvent.CLAIM),
        "worker_id": worker_id,
        "generation": queued.generation + 1,
        "agent_version": agents[queued.agent],
        "last_seq": appended.seq if appended else queued.last_seq,
        "last_activity_at": at,
    }
    rows = [] if appended is None else [appending(appended)]
    begun = {"invocation": queued.invocation_id, "status": RunStatus.RUNNING, "at": at, "redis": redis_run_id}
    try:
        invocation = await write_returning(
            connection, (_RUN_CLAIMED, {"run": queued.id, **claimed}), *rows, (_INVOCATION_CLAIMED, begun)
        )
    except sa.exc.IntegrityError as error:  # the run's foreign key to `workers`
        raise WorkerGone(worker_id) from error
    assert invocation is not None, "the run's row is locked"
    return Claim(
        run=replace(queued, **claimed),
        invocation=Invocation(**invocation._mapping),
        folded=folded,
        appended=appended,
    )


async def _lock_first(connection: AsyncConnection, statement: sa.Select[Any], groups: Sequence[Group]) -> Run | None:
    for group in groups:
        parameters = {"queue": group.queue, "agent": group.agent, "tenant_id": group.tenant_id}
        row = (await connection.execute(statement, parameters)).one_or_none()
        if row is not None:
            return Run(**row._mapping)
    return None


async def is_cancel_requested(connection: AsyncConnection, run_id: RunId, generation: int) -> bool:
    """Whether the run, still at this generation, is to stop."""
    statement = sa.select(agent_runs.c.cancel_requested).where(
        agent_runs.c.id == run_id, agent_runs.c.generation == generation
    )
    return bool((await connection.execute(statement)).scalar_one_or_none())


async def give_back(
    connection: AsyncConnection,
    run_id: RunId,
    generation: int,
    *,
    sent: int | None = None,
    spent: Totals | None = None,
) -> GivenBack | None:
    """Put a running run back into the queue for another worker; None when it is no longer ours to give.

    `sent`: the number of its last frame, where the run stands at a boundary and Redis has all of them: whoever takes it
    goes on behind that one, and withdraws nothing. `spent`: what it has cost, with a model's call that was broken off;
    its steps are those that are stored.
    """
    paid = {} if spent is None else {"usage": spent.run_usage, "cost": spent.run_cost}
    row = (
        await connection.execute(
            sa.update(agent_runs)
            .where(
                agent_runs.c.id == run_id,
                agent_runs.c.generation == generation,
                agent_runs.c.status == RunStatus.RUNNING,
            )
            .values(
                status=after(RunStatus.RUNNING, RunEvent.GIVE_BACK),
                worker_id=None,
                generation=agent_runs.c.generation + 1,
                requeued_at=now_ms(),
                **paid,
            )
            .returning(agent_runs.c.invocation_id, agent_runs.c.queue)
        )
    ).one_or_none()
    if row is None:
        return None
    values: dict[str, Any] = {"status": RunStatus.QUEUED}
    if sent is not None:
        values["last_frame"] = sent
    if spent is not None:
        values |= {"usage": spent.usage, "cost": spent.cost}
    await connection.execute(
        sa.update(agent_invocations).where(agent_invocations.c.id == row.invocation_id).values(**values)
    )
    return GivenBack(run_id=run_id, invocation_id=row.invocation_id, queue=row.queue)
