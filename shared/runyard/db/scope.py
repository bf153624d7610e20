"""Who may see and change which runs: the one place where a statement is restricted to a caller's rows."""

from dataclasses import dataclass
from typing import Any, Self

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from runyard.db.tables import agent_runs


@dataclass(frozen=True, kw_only=True, slots=True)
class Scope:
    """The rows that a caller may see and change: runs of these tenants that belong to this user; `user_id` None: to any
    user.
    """

    tenants: tuple[str, ...]
    user_id: str | None

    @classmethod
    def of_user(cls, tenant_id: str, user_id: str) -> Self:
        return cls(tenants=(tenant_id,), user_id=user_id)

    @classmethod
    def of_tenant(cls, tenant_id: str) -> Self:
        return cls(tenants=(tenant_id,), user_id=None)

    def within(self, *, tenant_id: str | None, user_id: str | None) -> Self | None:
        """The part of the scope that is about this tenant or this user only; None: there is none."""
        tenants = self.tenants if tenant_id is None else tuple(name for name in self.tenants if name == tenant_id)
        if not tenants or (self.user_id is not None and user_id not in {None, self.user_id}):
            return None
        return type(self)(tenants=tenants, user_id=self.user_id or user_id)


class Scoped:
    """A statement on `agent_runs`, or on what is joined to it, restricted to a caller's rows.

    It is made once and executed often, in a variant for each kind of scope, so that each finds its rows by an index.
    For a single tenant, the usual case, the condition is a plain comparison; a list of tenants is written into the
    statement at each execution.
    """

    def __init__(self, statement: sa.Select[Any]) -> None:
        of_tenant = statement.where(agent_runs.c.tenant_id == sa.bindparam("tenant"))
        of_tenants = statement.where(agent_runs.c.tenant_id.in_(sa.bindparam("tenants", expanding=True)))
        user = agent_runs.c.user_id == sa.bindparam("user")
        self._of_one = {False: of_tenant, True: of_tenant.where(user)}
        self._of_many = {False: of_tenants, True: of_tenants.where(user)}

    async def execute(self, connection: AsyncConnection, scope: Scope, **parameters: Any) -> sa.CursorResult[Any]:
        owned = scope.user_id is not None
        if owned:
            parameters["user"] = scope.user_id
        if len(scope.tenants) == 1:
            statement, parameters["tenant"] = self._of_one[owned], scope.tenants[0]
        else:
            statement, parameters["tenants"] = self._of_many[owned], scope.tenants
        found: sa.CursorResult[Any] = await connection.execute(statement, parameters)
        return found
