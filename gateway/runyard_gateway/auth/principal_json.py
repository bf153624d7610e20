"""A principal as JSON, so that any gateway knows the caller to whom another gateway gave a ticket.

`{"tenant", "user", "roles", "rooms"}` or `{"service", "tenants"}`, plus what the credential adds: `endsAtS`, or `key`
(a hash).
"""

from collections.abc import Mapping
from typing import Any

from runyard_gateway.auth.principal import Identity, Principal, Service


def to_dict(principal: Principal) -> dict[str, Any]:
    match principal.caller:
        case Identity() as user:
            caller: dict[str, Any] = {"tenant": user.tenant_id, "user": user.user_id}
            caller |= {"roles": sorted(user.roles), "rooms": list(user.rooms)}
        case Service(name=name, tenants=tenants):
            caller = {"service": name, "tenants": list(tenants)}
    return caller | principal.credential.to_dict()


def caller_of(stored: Mapping[str, Any]) -> Identity | Service:
    if "service" in stored:
        return Service(name=stored["service"], tenants=tuple(stored["tenants"]))
    return Identity(
        tenant_id=stored["tenant"],
        user_id=stored["user"],
        roles=frozenset(stored["roles"]),
        rooms=tuple(stored.get("rooms", ())),  # a gateway of the version before wrote none
    )
