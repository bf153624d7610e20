"""The transactions in which a worker takes a run or gives it back."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from runyard.clock import now_ms
from runyard.db.groups import Group
from runyard.db.inputs import fold_opening
from runyard.db.limits import (
    NO_LIMITS,
    Limits,
    lock_limits,
    running_of_agent,
    running_of_tenant,
    running_of_user,
)
from runyard.db.records import Input, Invocation, Message, Run
from runyard.db.tables import QUEUED, agent_invocations, agent_runs
from runyard.db.together import Update, write_returning
from runyard.db.transcripts import appending
from runyard.db.turns import Totals
from runyard.ids import InvocationId, RunId, WorkerId
from runyard.runs import RunEvent, RunStatus, after


@dataclass(frozen=True, kw_only=True, slots=True)
class Claim:
    """A run that now belongs to this worker, and its invocation, as stored by the claim.

    `folded`: the inputs that this claim put into the transcript; `appended`: the transcript row that holds them.
    """

    run: Run
    invocation: Invocation
    folded: tuple[Input, ...]
    appended: Message | None

    @property
    def is_takeover(self) -> bool:
        """Whether the invocation had begun before, on another worker or on this one."""
        return not self.folded

    @property
    def transcript(self) -> list[Message] | None:
        """The whole transcript, if this claim wrote its only row. None: read it from the database."""
        return [self.appended] if self.appended is not None and self.appended.seq == 1 else None


class UnclaimableError(Exception):
    """The best queued run cannot begin, because its rows are inconsistent. `run`: as it was found."""

    def __init__(self, run: Run) -> None:
        super().__init__(f"run {run.id} cannot be claimed")
        self.run = run


_UNFITTING = (sa.exc.IntegrityError, sa.exc.DataError, sa.exc.NoResultFound, LookupError, ValueError, TypeError)
"""Raised by inconsistent rows, as a restore or a manual change may leave them. Every claim would raise them again."""


@dataclass(frozen=True, kw_only=True, slots=True)
class GivenBack:
    """A queued run, as the wake-up names it. `cancel_requested`: it is to be stopped."""

    run_id: RunId
    invocation_id: InvocationId
    queue: str
    cancel_requested: bool = False


_tenant, _user = sa.bindparam("tenant_id", type_=sa.Text), sa.bindparam("user_id", type_=sa.Text)
_agent = sa.bindparam("agent", type_=sa.Text)
_counted = {
    "per_user": running_of_user(_tenant, _user),
    "per_tenant": running_of_tenant(_tenant),
    "per_agent": running_of_agent(_agent),
}


@cache
def _first_row(names: frozenset[str], *, skip_locked: bool) -> sa.Select[Any]:
    """The first row of a group, locked. `names`: `user_id`, and the limits that it counts against."""
    statement = sa.select(agent_runs).where(
        agent_runs.c.status == QUEUED,
        agent_runs.c.queue == sa.bindparam("queue"),
        agent_runs.c.agent == _agent,
        agent_runs.c.tenant_id == _tenant,
        *(running < sa.bindparam(name, type_=sa.Integer) for name, running in _counted.items() if name in names),
    )
    if "user_id" in names:
        statement = statement.where(agent_runs.c.user_id == _user)
    return statement.order_by(agent_runs.c.rank, agent_runs.c.id).limit(1).with_for_update(skip_locked=skip_locked)


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


async def take(
    connection: AsyncConnection,
    groups: Sequence[Group],
    limits: Limits = NO_LIMITS,
    *,
    worker_id: WorkerId,
    agents: dict[str, str],
    redis_run_id: str,
    at: int,
) -> Claim | None:
    """Claim the first unlocked row of the best group that has one, and fold its opening input, in the caller's
    transaction.

    If all rows are locked, wait for the best one: its transaction may end without taking it. None: all rows were taken
    meanwhile, or a limit was reached. Look for groups again.

    Raises:
        UnclaimableError: the run's rows are inconsistent, or this worker's row is gone.
    """
    queued = await _lock_best(connection, groups, limits)
    if queued is None:
        return None
    try:
        return await _begin(
            connection, queued, worker_id=worker_id, version=agents[queued.agent], redis_run_id=redis_run_id, at=at
        )
    except _UNFITTING as error:
        raise UnclaimableError(queued) from error


async def _begin(
    connection: AsyncConnection, queued: Run, *, worker_id: WorkerId, version: str, redis_run_id: str, at: int
) -> Claim:
    folded, appended = await fold_opening(connection, queued, at=at)
    claimed: dict[str, Any] = {
        "status": after(queued.status, RunEvent.CLAIM),
        "worker_id": worker_id,
        "generation": queued.generation + 1,
        "agent_version": version,
        "last_seq": appended.seq if appended else queued.last_seq,
        "last_activity_at": at,
    }
    rows = [] if appended is None else [appending(appended)]
    begun = {"invocation": queued.invocation_id, "status": RunStatus.RUNNING, "at": at, "redis": redis_run_id}
    invocation = await write_returning(
        connection, (_RUN_CLAIMED, {"run": queued.id, **claimed}), *rows, (_INVOCATION_CLAIMED, begun)
    )
    if invocation is None:
        raise LookupError(queued.newest_invocation)
    return Claim(
        run=replace(queued, **claimed),
        invocation=Invocation(**invocation._mapping),
        folded=folded,
        appended=appended,
    )


async def _lock_best(connection: AsyncConnection, groups: Sequence[Group], limits: Limits) -> Run | None:
    """If limits apply, only the first group is tried: two claims that lock several limits could wait for each other."""
    best, *others = groups
    if limits.concern(best.agent):
        others = []
        await lock_limits(connection, limits, agent=best.agent, tenant_id=best.tenant_id, user_id=best.user_id)
    for group in [best, *(group for group in others if not limits.concern(group.agent))]:
        if (run := await _lock_first(connection, group, limits, skip_locked=True)) is not None:
            return run
    return await _lock_first(connection, best, limits, skip_locked=False)


async def _lock_first(connection: AsyncConnection, group: Group, limits: Limits, *, skip_locked: bool) -> Run | None:
    kept = {
        "user_id": group.user_id,
        "per_user": limits.per_user,
        "per_tenant": limits.per_tenant,
        "per_agent": limits.per_agent.get(group.agent),
    }
    given = {name: value for name, value in kept.items() if value is not None}
    parameters = {"queue": group.queue, "agent": group.agent, "tenant_id": group.tenant_id, **given}
    row = (await connection.execute(_first_row(frozenset(given), skip_locked=skip_locked), parameters)).one_or_none()
    return None if row is None else Run(**row._mapping)


async def is_cancel_requested(connection: AsyncConnection, run_id: RunId, generation: int) -> bool:
    """Whether the run is to be stopped. False if it has another generation now."""
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
    """Put a running run back into the queue for another worker. None: it does not belong to this worker any more.

    `sent`: the number of its last frame, if the run stands at a boundary and Redis has all frames. The next worker then
    goes on after that frame and withdraws nothing. `spent`: usage and cost including a model call that was broken off;
    the steps stay as they are stored.
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
            .returning(agent_runs.c.invocation_id, agent_runs.c.queue, agent_runs.c.cancel_requested)
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
    return GivenBack(run_id=run_id, **row._mapping)
