"""`runyard keys`: the service keys of a database. A change reaches gateways within five seconds."""

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from runyard.cli.databases import in_database
from runyard.cli.tables import output_console, row, table
from runyard.clock import now_ms, to_iso
from runyard.db.engine import Database
from runyard.db.service_keys import add_key, all_keys, revoke_key
from runyard.errors import StartError
from runyard.service_keys import ServiceKey, hash_of, new_key
from runyard.settings import DatabaseSettings
from runyard.text import NAME_RULE, is_name

T = TypeVar("T")


def create(name: str, tenants: Sequence[str]) -> str:
    """Make a key and return it; it is not stored anywhere else.

    Raises:
        StartError: the name is taken or not allowed.
    """
    for given in (name, *tenants):
        if not is_name(given):
            raise StartError(f"the key and each tenant must have {NAME_RULE}")
    key = new_key()
    made = ServiceKey(name=name, hash=hash_of(key), tenants=tuple(dict.fromkeys(tenants)))
    if not _in_database(lambda database: database.write(add_key, made, last_four=key[-4:], at=now_ms())):
        raise StartError(f"there is a key of the name {name} already, or there was one: choose another name")
    return key


def print_list() -> None:
    """Print a table of all keys, including revoked ones; of each key only the last four digits."""
    drawn = table(("NAME", "KEY", "TENANTS", "CREATED", "REVOKED"))
    for key in _in_database(lambda database: database.read(all_keys)):
        revoked = "" if key.revoked_at is None else to_iso(key.revoked_at)
        row(drawn, key.name, f"ry_...{key.last_four}", ",".join(key.tenants), to_iso(key.created_at), revoked)
    output_console().print(drawn)


def revoke(name: str) -> None:
    """Raises `StartError` if there is no key of this name."""
    if not _in_database(lambda database: database.write(revoke_key, name, at=now_ms())):
        raise StartError(f"there is no key of the name {name}: see `runyard keys list`")


def _in_database(work: Callable[[Database], Awaitable[T]]) -> T:
    return in_database(DatabaseSettings.load().database_url, work)
