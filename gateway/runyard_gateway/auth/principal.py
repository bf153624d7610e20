"""Who calls, whom a call is for, and for how long what the caller has shown is good."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from runyard.db.scope import Scope
from runyard.errors import Unauthenticated

DEFAULT_TENANT = "default"
ADMIN, SERVICE = "admin", "service"


class Credential(Protocol):
    """What a caller has shown. An answer that goes on for long asks to be told when it is no longer good."""

    def written(self) -> dict[str, Any]:
        """What another gateway needs to know of it, as JSON: `Authenticator.recall` reads it. No secret is in it."""
        ...

    def on_end(self, tell: Callable[[Unauthenticated], None]) -> Callable[[], None]:
        """`tell` is called once, on the event loop, when it ends. What is returned takes that back."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Identity:
    """A user: whom a call is for. They own the run that it creates; `roles` are what its tools see."""

    tenant_id: str
    user_id: str
    roles: frozenset[str]
    rooms: tuple[str, ...] = ()
    """Those that they may join beside what agents open, as their token names them."""

    @property
    def is_admin(self) -> bool:
        return ADMIN in self.roles

    @property
    def scope(self) -> Scope:
        """Their own runs, or all of their tenant's."""
        return Scope.of_tenant(self.tenant_id) if self.is_admin else Scope.of_user(self.tenant_id, self.user_id)


NOBODY = Identity(tenant_id=DEFAULT_TENANT, user_id="", roles=frozenset())
"""Who calls a public function without a token, and owns the run: no token can name an empty user."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Service:
    """A program that calls for the users of these tenants: each call on an agent says for which one (`as`)."""

    name: str
    tenants: tuple[str, ...]

    @property
    def scope(self) -> Scope:
        return Scope(tenants=self.tenants, user_id=None)


@dataclass(frozen=True, kw_only=True, slots=True)
class Principal:
    caller: Identity | Service
    credential: Credential

    @property
    def is_service(self) -> bool:
        """It would not know what became of input that joined somebody's turn."""
        return isinstance(self.caller, Service)

    @property
    def is_nobody(self) -> bool:
        return self.caller == NOBODY

    @property
    def scope(self) -> Scope:
        """What restricts every query to the rows that the caller may see and change."""
        return self.caller.scope
