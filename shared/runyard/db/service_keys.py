"""Service keys as rows: made and revoked by `runyard keys`, looked up by gateways."""

from collections.abc import Sequence
from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.asyncio import AsyncConnection

from runyard.db.tables import service_keys
from runyard.service_keys import ServiceKey

_insert = {
    name: insert(service_keys).on_conflict_do_nothing().returning(service_keys.c.name)
    for name, insert in (("postgresql", postgresql.insert), ("sqlite", sqlite.insert))
}
_active = sa.select(service_keys.c.name, service_keys.c.hash, service_keys.c.tenants).where(
    service_keys.c.hash.in_(sa.bindparam("hashes", expanding=True)), service_keys.c.revoked_at.is_(None)
)
_revoke = (
    sa.update(service_keys)
    .where(service_keys.c.name == sa.bindparam("of_name"))
    .values(revoked_at=sa.func.coalesce(service_keys.c.revoked_at, sa.bindparam("at")))
)


@dataclass(frozen=True, kw_only=True, slots=True)
class KeyRow:
    """A key as `runyard keys list` shows it."""

    name: str
    last_four: str
    tenants: list[str]
    created_at: int
    revoked_at: int | None


async def add_key(connection: AsyncConnection, key: ServiceKey, *, last_four: str, at: int) -> bool:
    """Whether the key was added: it is not if a key of this name exists or ever existed."""
    row = {"name": key.name, "hash": key.hash, "last_four": last_four, "tenants": list(key.tenants), "created_at": at}
    return (await connection.execute(_insert[connection.dialect.name], row)).one_or_none() is not None


async def revoke_key(connection: AsyncConnection, name: str, *, at: int) -> bool:
    """Whether a key of this name exists. One that was revoked before keeps its time."""
    return (await connection.execute(_revoke, {"of_name": name, "at": at})).rowcount == 1


async def all_keys(connection: AsyncConnection) -> list[KeyRow]:
    """All keys, the oldest first."""
    columns = (service_keys.c[name] for name in KeyRow.__dataclass_fields__)
    rows = await connection.execute(sa.select(*columns).order_by(service_keys.c.created_at, service_keys.c.name))
    return [KeyRow(**row._mapping) for row in rows]


async def active_keys(connection: AsyncConnection, hashes: Sequence[str]) -> dict[str, ServiceKey]:
    """The keys among these that exist and are not revoked, by hash."""
    rows = await connection.execute(_active, {"hashes": list(hashes)})
    return {row.hash: ServiceKey(name=row.name, hash=row.hash, tenants=tuple(row.tenants)) for row in rows}
