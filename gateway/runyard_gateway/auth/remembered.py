"""A principal as JSON, for what one gateway lets a caller do and another one is then asked for.

`{"tenant", "user", "roles"}` or `{"service", "tenants"}`, and what its credential adds: `endsAtS`, or `key` (a hash).
"""

from collections.abc import Mapping
from typing import Any

from runyard_gateway.auth.principal import Identity, Principal, Service


def written(principal: Principal) -> dict[str, Any]:
    match principal.caller:
        case Identity(tenant_id=tenant_id, user_id=user_id, roles=roles):
            caller: dict[str, Any] = {"tenant": tenant_id, "user": user_id, "roles": sorted(roles)}
        case Service(name=name, tenants=tenants):
            caller = {"service": name, "tenants": list(tenants)}
    return caller | principal.credential.written()


def caller_of(written: Mapping[str, Any]) -> Identity | Service:
    if "service" in written:
        return Service(name=written["service"], tenants=tuple(written["tenants"]))
    return Identity(tenant_id=written["tenant"], user_id=written["user"], roles=frozenset(written["roles"]))
