"""Where the best queued run is: the groups (queue, agent, tenant) with runs that may be claimed, the best first.

The best group is that of the tenant with the fewest running runs; of several, the one with the lowest rank. Groups are
found by a loose index scan: one probe a group, whatever the number of queued rows. With a limit for each user, the
first rows of a group are searched for a user below the limit. If there is none, the group's users are searched one by
one, with one probe a user.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from runyard.db.limits import ANY_NUMBER, NO_LIMITS, Limits, full_agents, running_of_tenant, running_of_user
from runyard.db.tables import QUEUED, agent_runs

NEAR = 32
"""How many rows at the head of a group are searched for a user below the limit."""

BEST = 64
"""How many groups are returned. A claim needs the next one only if all rows of a group are locked, which is rare."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Group:
    """Queued runs that differ only in rank: the one with the lowest rank is next.

    `user_id`: only runs of this user; None: of any user. `running`: the tenant's running runs, on all workers.
    """

    queue: str
    agent: str
    tenant_id: str
    user_id: str | None
    running: int


async def queued_groups(
    connection: AsyncConnection, queues: Sequence[str], agents: Sequence[str], limits: Limits = NO_LIMITS
) -> list[Group]:
    """Groups whose first row may be claimed now, the best first; at most `BEST`."""
    full = await full_agents(connection, limits)
    parameters = parameters_of(queues, [agent for agent in agents if agent not in full], per_tenant=limits.per_tenant)
    if limits.per_user is None:
        rows = await connection.execute(best_groups, parameters)
    else:
        rows = await connection.execute(_groups_of_users, parameters | {"per_user": limits.per_user})
    return [Group(**row._mapping) for row in rows]


def parameters_of(queues: Sequence[str], agents: Sequence[str], *, per_tenant: int | None = None) -> dict[str, Any]:
    """The parameters of `best_groups`."""
    return {
        "queues": list(queues),
        "agents": list(agents),
        "per_tenant": ANY_NUMBER if per_tenant is None else per_tenant,
    }


Where = Callable[[sa.FromClause], Sequence[sa.ColumnElement[bool]]]


def _heads(name: str, columns: Sequence[str], where: Where, *, nesting: bool = False) -> sa.CTE:
    """The first row of each group of queued rows with equal `columns`: its columns, `rank` and `id`, and as `next` the
    id of the next group's first row. The first row of the result has only `next`.
    """
    queued = agent_runs.alias(f"{name}_queued")
    order = [queued.c[column] for column in (*columns, "rank", "id")]
    rows = sa.select(queued.c.id).where(queued.c.status == QUEUED, *where(queued)).order_by(*order).limit(1)
    first = rows.correlate_except(queued).scalar_subquery()
    shown = [agent_runs.c[column] for column in (*columns, "rank", "id")]
    nothing = [sa.cast(sa.null(), column.type).label(column.name) for column in shown]
    heads = sa.select(first.label("next"), *nothing).cte(name, recursive=True, nesting=nesting)
    head = agent_runs.alias(f"{name}_head")
    following = rows.where(_after(queued, head, columns)).correlate_except(queued).scalar_subquery()
    return heads.union_all(
        sa.select(following, *(head.c[column.name] for column in shown)).select_from(
            heads.join(head, head.c.id == heads.c.next)
        )
    )


def _after(queued: sa.FromClause, head: sa.FromClause, columns: Sequence[str]) -> sa.ColumnElement[bool]:
    if len(columns) == 1:
        return queued.c[columns[0]] > head.c[columns[0]]
    # SQLite finds a row of values in an index only if the comparison has the index's affinity. Two columns compare
    # without any, and only the first would be searched; the outcome of `||` takes the other side's.
    # https://www.sqlite.org/datatype3.html#affinity_of_comparison_operands
    nothing = sa.literal_column("''", sa.Text)
    return sa.tuple_(*(queued.c[column] for column in columns)) > sa.tuple_(
        *(head.c[column].concat(nothing) for column in columns)
    )


def _served() -> sa.CTE:
    """The groups that this worker serves, each with the number of its tenant's running runs."""
    heads = _heads("heads", ("queue", "agent", "tenant_id"), lambda _: ())
    return (
        sa.select(
            *(heads.c[column] for column in ("queue", "agent", "tenant_id", "rank", "id")),
            running_of_tenant(heads.c.tenant_id).label("running"),
        )
        .where(
            heads.c.id.is_not(None),
            heads.c.queue.in_(sa.bindparam("queues", expanding=True)),
            heads.c.agent.in_(sa.bindparam("agents", expanding=True)),
        )
        .cte("served")
        .prefix_with("MATERIALIZED")  # the count is compared and ordered by, but made once
    )


def _groups_statement() -> sa.Select[Any]:
    served = _served()
    nobody = sa.null().label("user_id")
    return (
        sa.select(served.c.queue, served.c.agent, served.c.tenant_id, nobody, served.c.running)
        .where(served.c.running < sa.bindparam("per_tenant", type_=sa.Integer))
        .order_by(served.c.running, served.c.rank, served.c.id)
        .limit(BEST)
    )


def _groups_of_users_statement() -> sa.Select[Any]:
    served, best = _served(), agent_runs.alias("best")
    candidate = sa.func.coalesce(_near(served), _of_all_users(served))
    allowed = sa.case((served.c.running < sa.bindparam("per_tenant", type_=sa.Integer), candidate))
    # A CTE of its own: to join on the result of a subquery, Postgres would read the whole table.
    candidates = sa.select(served, allowed.label("best_id")).cte("candidates").prefix_with("MATERIALIZED")
    return (
        sa.select(candidates.c.queue, candidates.c.agent, candidates.c.tenant_id, best.c.user_id, candidates.c.running)
        .select_from(candidates.join(best, best.c.id == candidates.c.best_id))
        .order_by(candidates.c.running, best.c.rank, best.c.id)
        .limit(BEST)
    )


def _near(served: sa.CTE) -> sa.ScalarSelect[str]:
    """Among the first rows of a group, the first one of a user below the limit."""
    near, row = agent_runs.alias("near"), agent_runs.alias("near_row")
    # The user is left out, so that the index by rank covers the query. With the user all rows would be sorted.
    rows = sa.select(near.c.id).where(near.c.status == QUEUED, *_of_group(near, served))
    first = rows.order_by(near.c.rank, near.c.id).limit(NEAR).correlate(served).subquery("first_rows")
    return (
        sa.select(row.c.id)
        .select_from(first.join(row, row.c.id == first.c.id))
        .where(_may_run(served, row))
        .order_by(row.c.rank, row.c.id)
        .limit(1)
        .correlate(served)
        .scalar_subquery()
    )


def _of_all_users(served: sa.CTE) -> sa.ScalarSelect[str]:
    users = _heads("users", ("user_id",), lambda queued: _of_group(queued, served), nesting=True)
    return (
        sa.select(users.c.id)
        .where(users.c.id.is_not(None), _may_run(served, users))
        .order_by(users.c.rank, users.c.id)
        .limit(1)
        .correlate(served)
        .scalar_subquery()
    )


def _of_group(queued: sa.FromClause, served: sa.CTE) -> list[sa.ColumnElement[bool]]:
    return [queued.c[column] == served.c[column] for column in ("queue", "agent", "tenant_id")]


def _may_run(served: sa.CTE, row: sa.FromClause) -> sa.ColumnElement[bool]:
    return running_of_user(served.c.tenant_id, row.c.user_id) < sa.bindparam("per_user", type_=sa.Integer)


best_groups = _groups_statement()
_groups_of_users = _groups_of_users_statement()
