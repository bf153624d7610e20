"""How many runs of a user, a tenant and an agent may run at once. Running rows are counted at each claim, so no counter
can be wrong.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from runyard.db.tables import RUNNING, agent_runs

_LOCKS = 0x72756E79
"""The first half of these advisory locks' keys; the second is the hash of a name. (Migrations lock a single number.)"""


ANY_NUMBER = 2**31 - 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """None, or an agent that is not named, means any number."""

    per_user: int | None = None
    per_tenant: int | None = None
    per_agent: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))

    @classmethod
    def of(cls, *, per_user: int, per_tenant: int, per_agent: Mapping[str, int]) -> "Limits":
        """From the settings, in which 0 means no limit."""
        return cls(per_user=per_user or None, per_tenant=per_tenant or None, per_agent=per_agent)

    def concern(self, agent: str) -> bool:
        return not (self.per_user is None and self.per_tenant is None and agent not in self.per_agent)


NO_LIMITS = Limits()


def is_full(limit: int | None, running: int) -> bool:
    """Whether the limit is reached."""
    return limit is not None and running >= limit


_running = agent_runs.alias("running")
_count = sa.select(sa.func.count()).select_from(_running).where(_running.c.status == RUNNING).correlate_except(_running)
_by_agent = (
    sa.select(agent_runs.c.agent, sa.func.count().label("runs"))
    .where(agent_runs.c.status == RUNNING, agent_runs.c.agent.in_(sa.bindparam("agents", expanding=True)))
    .group_by(agent_runs.c.agent)
)
_by_tenant = (
    sa.select(agent_runs.c.tenant_id, sa.func.count().label("runs"))
    .where(agent_runs.c.status == RUNNING, agent_runs.c.tenant_id.in_(sa.bindparam("tenants", expanding=True)))
    .group_by(agent_runs.c.tenant_id)
)
_by_user = (
    sa.select(agent_runs.c.tenant_id, agent_runs.c.user_id, sa.func.count().label("runs"))
    .where(agent_runs.c.status == RUNNING, agent_runs.c.tenant_id.in_(sa.bindparam("tenants", expanding=True)))
    .group_by(agent_runs.c.tenant_id, agent_runs.c.user_id)
)
_lock = sa.select(sa.func.pg_advisory_xact_lock(_LOCKS, sa.func.hashtext(sa.bindparam("name"))))


def running_of_agent(agent: sa.ColumnElement[str]) -> sa.ScalarSelect[int]:
    return _count.where(_running.c.agent == agent).scalar_subquery()


def running_of_tenant(tenant_id: sa.ColumnElement[str]) -> sa.ScalarSelect[int]:
    return _count.where(_running.c.tenant_id == tenant_id).scalar_subquery()


def runs_nothing(tenant_id: sa.ColumnElement[str]) -> sa.ColumnElement[bool]:
    """Whether no run of the tenant runs: found at the first one, where `running_of_tenant` counts all."""
    runs = sa.select(_running.c.id).where(_running.c.status == RUNNING, _running.c.tenant_id == tenant_id)
    return sa.not_(runs.correlate_except(_running).exists())


def running_of_user(tenant_id: sa.ColumnElement[str], user_id: sa.ColumnElement[str]) -> sa.ScalarSelect[int]:
    return _count.where(_running.c.tenant_id == tenant_id, _running.c.user_id == user_id).scalar_subquery()


async def running_by_agent(connection: AsyncConnection, agents: Collection[str]) -> Counter[str]:
    """How many runs of each of these agents run now."""
    if not agents:
        return Counter()
    rows = await connection.execute(_by_agent, {"agents": list(agents)})
    return Counter({row.agent: row.runs for row in rows})


async def running_by_tenant(connection: AsyncConnection, tenants: Collection[str]) -> Counter[str]:
    """How many runs of each of these tenants run now."""
    rows = await connection.execute(_by_tenant, {"tenants": list(tenants)})
    return Counter({row.tenant_id: row.runs for row in rows})


async def running_by_user(connection: AsyncConnection, tenants: Collection[str]) -> Counter[tuple[str, str]]:
    """How many runs of each user of these tenants run now, by tenant and user."""
    rows = await connection.execute(_by_user, {"tenants": list(tenants)})
    return Counter({(row.tenant_id, row.user_id): row.runs for row in rows})


async def full_agents(connection: AsyncConnection, limits: Limits) -> set[str]:
    """The agents that have as many runs running as they may."""
    running = await running_by_agent(connection, limits.per_agent)
    return {agent for agent, limit in limits.per_agent.items() if is_full(limit, running[agent])}


@dataclass(frozen=True, kw_only=True, slots=True)
class Running:
    """How many runs run now. What no limit restricts is not counted."""

    by_agent: Counter[str]
    by_tenant: Counter[str]
    by_user: Counter[tuple[str, str]]


async def running_now(connection: AsyncConnection, limits: Limits, tenants: Collection[str]) -> Running:
    """What runs of the limited agents, and of these tenants, in two statements at most."""
    restricts_callers = limits.per_user is not None or limits.per_tenant is not None
    by_user = await running_by_user(connection, tenants) if restricts_callers else Counter()
    by_tenant: Counter[str] = Counter()
    for (tenant_id, _), runs in by_user.items():
        by_tenant[tenant_id] += runs
    by_agent = await running_by_agent(connection, limits.per_agent)
    return Running(by_agent=by_agent, by_tenant=by_tenant, by_user=by_user)


async def lock_limits(
    connection: AsyncConnection, limits: Limits, *, agent: str, tenant_id: str, user_id: str | None
) -> None:
    """Until the end of the transaction no other claim counts against the same limits, so the counts stay true. The
    order is always the same, so two claims cannot deadlock. On SQLite nothing is to do: it has one writer.
    """
    if connection.dialect.name != "postgresql":
        return
    for name in _names(limits, agent, tenant_id, user_id):
        await connection.execute(_lock, {"name": name})


def _names(limits: Limits, agent: str, tenant_id: str, user_id: str | None) -> Iterator[str]:
    if agent in limits.per_agent:
        yield f"agent {agent}"
    if limits.per_tenant is not None:
        yield f"tenant {tenant_id}"
    if limits.per_user is not None:
        yield f"user {tenant_id} {user_id}"
