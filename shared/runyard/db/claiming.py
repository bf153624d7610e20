"""Claiming: a worker with a free slot takes the best queued run of its queues and agents (`runyard.db.groups`).

On Postgres the usual claim is one statement (`take_usual`): there are no limits, and the run's only waiting input is
the one that opens its next invocation. All other claims are made by `take`. The usual claim looks at the rows of the
lowest ranks first, and at the groups only if the tenants of all those rows run something.
"""

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql
from sqlalchemy.ext.asyncio import AsyncConnection

from runyard.db.claims import Claim, UnclaimableError, take
from runyard.db.engine import Database
from runyard.db.groups import best_groups, parameters_of, queued_groups
from runyard.db.limits import NO_LIMITS, Limits, runs_nothing
from runyard.db.records import Input, Invocation, Run
from runyard.db.tables import QUEUED, agent_inputs, agent_invocations, agent_messages, agent_runs, workers
from runyard.db.transcripts import user_row
from runyard.errors import WorkerGone
from runyard.ids import WorkerId
from runyard.runs import RunEvent, RunStatus, after


async def claim_best(
    database: Database,
    *,
    worker_id: WorkerId,
    queues: Sequence[str],
    agents: dict[str, str],
    redis_run_id: str,
    at: int,
    limits: Limits = NO_LIMITS,
    passing_over: str | None = None,
) -> Claim | None:
    """Claim the best queued run. None: nothing is queued that this worker may run.

    Args:
        agents: the worker's agents and their versions.
        redis_run_id: the Redis process that will hold the invocation's first frame.
        passing_over: a tenant whose runs come last, however few of them run.

    Raises:
        WorkerGone: this worker's row is gone.
        UnclaimableError: the best run cannot begin. It blocks the others until it is set aside.
        StoreUnavailable, CommitUnknown: see `Database.write`. A run that a commit of unknown outcome has claimed is
            given back later, since the beat finds that it belongs to this worker and does not run here.
    """
    worker: dict[str, Any] = {"worker_id": worker_id, "agents": agents, "redis_run_id": redis_run_id, "at": at}
    if limits == NO_LIMITS and passing_over is None and not database.is_sqlite:
        is_any, claim = await database.write_at_once(take_usual, queues, **worker)
        if claim is not None or not is_any:
            return claim
    while True:
        groups = await database.read(queued_groups, queues, list(agents), limits)
        if not groups:
            return None
        groups.sort(key=lambda group: group.tenant_id == passing_over)  # the sort is stable
        try:
            claim = await database.write(take, groups, limits, **worker)
        except UnclaimableError as error:
            if not await database.read(_is_there, worker_id):  # then the run's foreign key to it was violated
                raise WorkerGone(worker_id) from error
            raise
        if claim is not None:
            return claim


def _usual_statement() -> sa.Select[Any]:
    """Whatever changes a run's messages, inputs or invocations also changes its row. So if the locked row is the one in
    this statement's snapshot, the rest of the snapshot is current too. If the locked row is newer, nothing is written.
    """
    near = _near_rows()
    either = sa.union_all(sa.select(_first_near(near)), sa.select(_first_of_groups())).subquery("either")
    locked = sa.select(either).limit(1).cte("locked").prefix_with("MATERIALIZED")
    opening = _opening_of(locked)
    run = (
        sa.update(agent_runs)
        .where(agent_runs.c.id == opening.c.run_id)
        .values(
            status=after(RunStatus.QUEUED, RunEvent.CLAIM),
            worker_id=sa.bindparam("worker"),
            generation=agent_runs.c.generation + 1,
            agent_version=sa.func.json_extract_path_text(_versions, agent_runs.c.agent),
            last_seq=agent_runs.c.last_seq + 1,
            last_activity_at=_at,
        )
        .returning(agent_runs)
        .cte("run")
    )
    appended = sa.select(run.c.id, run.c.last_seq, run.c.invocation_id, sa.literal("user"), opening.c.content, _at)
    columns = ["run_id", "seq", "invocation_id", "role", "content", "created_at"]
    message = (
        sa.insert(agent_messages).from_select(columns, appended.where(run.c.id == opening.c.run_id)).cte("message")
    )
    folded = (
        sa.update(agent_inputs)
        .where(agent_inputs.c.id == opening.c.id, run.c.id == opening.c.run_id)
        .values(folded_in_seq=run.c.last_seq)
        .returning(agent_inputs)
        .cte("folded")
    )
    invocation = (
        sa.update(agent_invocations)
        .where(agent_invocations.c.id == run.c.invocation_id)
        .values(
            status=RunStatus.RUNNING,
            started_at=_at,
            redis_run_id=sa.func.coalesce(agent_invocations.c.redis_run_id, sa.bindparam("redis")),
        )
        .returning(agent_invocations)
        .cte("invocation")
    )
    taken = run.join(invocation, invocation.c.run_id == run.c.id).join(folded, folded.c.run_id == run.c.id)
    is_any = sa.select(sa.exists(sa.select(near)).label("is_any")).subquery("any_row")
    return sa.select(is_any, run, invocation, folded).select_from(is_any.outerjoin(taken, sa.true())).add_cte(message)


_NEAR: sa.ColumnElement[int] = sa.literal_column("32")
"""How many rows are looked at before the groups are. Not a parameter: Postgres would assume a large number, keep no
plan, and plan each claim again."""


def _near_rows() -> sa.CTE:
    """The queued rows of the lowest ranks that this worker may run."""
    name = sa.column("name", sa.Text)
    queue = sa.func.json_array_elements_text(_queues).table_valued(name).render_derived(name="served_queue")
    agent = sa.func.json_object_keys(_versions).table_valued(name).render_derived(name="served_agent")
    row = agent_runs.alias("near")
    served = (row.c.status == QUEUED, row.c.queue == queue.c.name, row.c.agent == agent.c.name)
    rows = sa.select(row.c.id, row.c.rank, row.c.tenant_id).where(*served)
    of_each = rows.order_by(row.c.rank, row.c.id).limit(_NEAR).lateral("of_each")
    all_of_them = queue.join(agent, sa.true()).join(of_each, sa.true())
    near = sa.select(of_each).select_from(all_of_them).order_by(of_each.c.rank, of_each.c.id).limit(_NEAR)
    return near.cte("near_rows").prefix_with("MATERIALIZED")


def _first_near(near: sa.CTE) -> sa.Subquery:
    """The first unlocked row of a tenant that runs nothing, locked. No tenant runs fewer, and all rows of lower ranks
    are among these: it is the best one, whatever else is queued.
    """
    row = agent_runs.alias("row")
    return (
        _shown(row)
        .select_from(near.join(row, row.c.id == near.c.id))
        .where(row.c.status == QUEUED, runs_nothing(near.c.tenant_id))
        .order_by(near.c.rank, near.c.id)
        .limit(1)
        .with_for_update(skip_locked=True, of=row)
        .subquery("first_near")
    )


def _first_of_groups() -> sa.Subquery:
    """The first unlocked row of the best group that has one, locked."""
    best = best_groups.cte("best").prefix_with("MATERIALIZED")
    row = agent_runs.alias("row")
    of_group = (row.c[name] == best.c[name] for name in ("queue", "agent", "tenant_id"))
    rows = _shown(row).where(row.c.status == QUEUED, *of_group).order_by(row.c.rank, row.c.id)
    first = rows.limit(1).with_for_update(skip_locked=True).correlate(best).lateral("first")
    return sa.select(first).select_from(best.join(first, sa.true())).limit(1).subquery("first_of_groups")


def _shown(row: sa.FromClause) -> sa.Select[Any]:
    return sa.select(row.c.id, row.c.invocation_id, row.c.changed_xid)


def _opening_of(locked: sa.CTE) -> sa.CTE:
    """The only waiting input of the locked run, if it opens the run's next invocation."""
    seen, waiting = agent_runs.alias("seen"), agent_inputs.alias("waiting")
    is_as_seen = sa.and_(seen.c.id == locked.c.id, seen.c.changed_xid == locked.c.changed_xid)
    is_new = sa.and_(agent_invocations.c.id == locked.c.invocation_id, agent_invocations.c.started_at.is_(None))
    waits = sa.and_(agent_inputs.c.run_id == locked.c.id, agent_inputs.c.folded_in_seq.is_(None))
    count = sa.select(sa.func.count()).where(waiting.c.run_id == locked.c.id, waiting.c.folded_in_seq.is_(None))
    return (
        sa.select(agent_inputs)
        .select_from(locked.join(seen, is_as_seen).join(agent_invocations, is_new).join(agent_inputs, waits))
        .where(agent_inputs.c.invocation_id == locked.c.invocation_id, count.scalar_subquery() == 1)
        .cte("opening")
        .prefix_with("MATERIALIZED")
    )


_at = sa.bindparam("at", type_=sa.BigInteger)
_queues = sa.bindparam("served", type_=postgresql.JSON)
_versions = sa.bindparam("versions", type_=postgresql.JSON)
_usual = _usual_statement()
_TAKEN = (agent_runs, agent_invocations, agent_inputs)


async def _is_there(connection: AsyncConnection, worker_id: WorkerId) -> bool:
    found = await connection.execute(sa.select(workers.c.id).where(workers.c.id == worker_id))
    return found.one_or_none() is not None


async def take_usual(
    connection: AsyncConnection,
    queues: Sequence[str],
    *,
    worker_id: WorkerId,
    agents: dict[str, str],
    redis_run_id: str,
    at: int,
) -> tuple[bool, Claim | None]:
    """Returns whether anything may be claimed, and the claim. None: nothing was done, and `take` may find one."""
    worker = {"served": list(queues), "worker": worker_id, "versions": agents, "redis": redis_run_id, "at": at}
    try:
        row = (await connection.execute(_usual, {**parameters_of(queues, list(agents)), **worker})).one()
    except (sa.exc.IntegrityError, sa.exc.DataError):  # `take` finds out whether the run or this worker is at fault
        return True, None
    values = iter(row)
    is_any = next(values)
    taken = [{column.name: next(values) for column in table.c} for table in _TAKEN]
    if taken[0]["id"] is None:
        return is_any, None
    run, invocation, item = Run(**taken[0]), Invocation(**taken[1]), Input(**taken[2])
    appended = user_row(run.id, invocation.id, run.last_seq, item.content, at=at)
    return True, Claim(run=run, invocation=invocation, folded=(item,), appended=appended)
