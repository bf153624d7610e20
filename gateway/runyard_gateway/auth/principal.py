"""Who calls, and for whom a call is made."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from runyard.db.scope import Scope
from runyard.errors import Unauthenticated

DEFAULT_TENANT = "default"
ADMIN, SERVICE = "admin", "service"


class Credential(Protocol):
    """What a caller has shown. A long answer can ask to be told when it is not valid any more."""

    def to_dict(self) -> dict[str, Any]:
        """As JSON for another gateway's `Authenticator.recall`. It contains no secret."""
        ...

    def on_end(self, tell: Callable[[Unauthenticated], None]) -> Callable[[], None]:
        """Call `tell` once, on the event loop, when the credential ends. The returned function cancels that."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Identity:
    """A user for whom a call is made. They own the run that it creates; its tools see `roles`."""

    tenant_id: str
    user_id: str
    roles: frozenset[str]
    rooms: tuple[str, ...] = ()
    """Rooms that their token allows them to join, besides those that agents open."""

    @property
    def is_admin(self) -> bool:
        return ADMIN in self.roles

    @property
    def scope(self) -> Scope:
        """Their own runs; for an admin, all runs of their tenant."""
        return Scope.of_tenant(self.tenant_id) if self.is_admin else Scope.of_user(self.tenant_id, self.user_id)


NOBODY = Identity(tenant_id=DEFAULT_TENANT, user_id="", roles=frozenset())
"""The caller of a public function who shows no token, and the owner of its run: no token can name an empty user."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Service:
    """A program that calls for the users of these tenants; each of its calls on an agent says for which user (`as`)."""

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
        """By default a service steers no run: it would not know what became of input that joined another turn."""
        return isinstance(self.caller, Service)

    @property
    def is_nobody(self) -> bool:
        return self.caller == NOBODY

    @property
    def scope(self) -> Scope:
        """Restricts every query to the rows that the caller may see and change."""
        return self.caller.scope
