"""`runyard keys`: the service keys of a database. Gateways hear of a change within five seconds."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from runyard.clock import now_ms, to_iso
from runyard.db.engine import Database
from runyard.db.migrate import wait_for_revision
from runyard.db.service_keys import KeyRow, add_key, all_keys, revoke_key
from runyard.errors import StartError, StoreUnavailable
from runyard.service_keys import ServiceKey, hash_of, new_key
from runyard.settings import DatabaseSettings
from runyard.text import NAME_RULE, is_name

T = TypeVar("T")
COLUMNS = ("NAME", "KEY", "TENANTS", "CREATED", "REVOKED")


def create(name: str, tenants: Sequence[str]) -> str:
    """The new key, which is nowhere but in this answer.

    Raises:
        StartError: the name is taken, or a name is none.
    """
    for given in (name, *tenants):
        if not is_name(given):
            raise StartError(f"the key and each tenant must have {NAME_RULE}")
    key = new_key()
    row = ServiceKey(name=name, hash=hash_of(key), tenants=tuple(dict.fromkeys(tenants)))
    if not _in_database(lambda database: database.write(add_key, row, last_four=key[-4:], at=now_ms())):
        raise StartError(f"there is a key of the name {name} already, or there was one: choose another name")
    return key


def listing() -> list[str]:
    """The lines of a table, its head the first; of a key it has the last four digits."""
    rows = [COLUMNS, *map(_cells, _in_database(lambda database: database.read(all_keys)))]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def revoke(name: str) -> None:
    """Raises `StartError`: there is no key of this name."""
    if not _in_database(lambda database: database.write(revoke_key, name, at=now_ms())):
        raise StartError(f"there is no key of the name {name}: see `runyard keys list`")


def _cells(row: KeyRow) -> tuple[str, ...]:
    revoked = "" if row.revoked_at is None else to_iso(row.revoked_at)
    return row.name, f"ry_...{row.last_four}", ",".join(row.tenants), to_iso(row.created_at), revoked


def _in_database(work: Callable[[Database], Awaitable[T]]) -> T:
    url = DatabaseSettings.load().database_url
    wait_for_revision(url, wait_s=0)

    async def run() -> T:
        database = Database(url, pool_size=1)
        try:
            return await work(database)
        finally:
            await database.close()

    try:
        return asyncio.run(run())
    except StoreUnavailable as error:
        raise StartError(f"{error.message} (RUNYARD_DATABASE_URL)") from error
