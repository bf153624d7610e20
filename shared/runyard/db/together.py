"""Several writes in one round trip: one statement on Postgres, one after the other on SQLite, which has no such
statement.

A transaction of small statements spends most of its time, and of the CPU that it costs, on their round trips.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.asyncio import AsyncConnection


@dataclass(frozen=True, kw_only=True, eq=False)
class Insert:
    """`unless_exists`: if there is a row with this key, write nothing and raise nothing."""

    table: sa.Table
    columns: tuple[str, ...]
    unless_exists: bool = False


@dataclass(frozen=True, kw_only=True, eq=False)
class Update:
    """A parameter of `where` or `computed` has the same value in all writes of a call that have a parameter of its
    name.
    """

    table: sa.Table
    columns: tuple[str, ...]
    where: sa.ColumnElement[bool]
    computed: Mapping[str, sa.ColumnElement[Any]] = field(default_factory=dict)
    """Columns whose new values are computed from the row's old ones."""
    returning: bool = False


Write = Insert | Update
"""To be made at import: statements that are made of it are cached for as long as the process lives."""

Values = Mapping[str, Any]
"""Values by column, and those of the parameters of `where` and `computed`."""


Work = tuple[Write, Values]


async def write_together(connection: AsyncConnection, first: Work, *others: Work) -> bool:
    """Returns whether the first write found its row. If it did not, nothing is written.

    On Postgres, all writes see the tables as they were before the statement. Only whether the others happen depends on
    what the first one has found under its lock.
    """
    if connection.dialect.name == "postgresql":
        return await _at_once(connection, first, *others) is not None
    return await _one_by_one(connection, first, *others) is not None


async def write_returning(connection: AsyncConnection, first: Work, *others: Work) -> sa.Row[Any] | None:
    """As `write_together`, if the last write is an Update with `returning`: returns the row that it changed."""
    if connection.dialect.name == "postgresql":
        return await _at_once(connection, first, *others)
    result = await _one_by_one(connection, first, *others)
    return None if result is None else result.one()


async def _at_once(connection: AsyncConnection, *works: Work) -> sa.Row[Any] | None:
    parameters: dict[str, Any] = {}
    for number, (write, values) in enumerate(works):
        names = _names(number, write)
        parameters |= {names.get(name, name): value for name, value in values.items()}
    statement = _as_one(*(write for write, _ in works))
    row: sa.Row[Any] | None = (await connection.execute(statement, parameters)).one_or_none()
    return row


async def _one_by_one(connection: AsyncConnection, first: Work, *others: Work) -> sa.CursorResult[Any] | None:
    result = await connection.execute(_alone(first[0]), dict(first[1]))
    if result.rowcount == 0:
        return None
    for write, values in others:
        result = await connection.execute(_alone(write), dict(values))
    return result


@cache
def _alone(write: Write) -> sa.Executable:
    match write:
        case Insert(table=table, unless_exists=unless_exists):
            return sqlite.insert(table).on_conflict_do_nothing() if unless_exists else sa.insert(table)
        case Update(table=table, where=where):
            update = sa.update(table).where(where).values(dict(write.computed))
            return update.returning(table) if write.returning else update


@cache
def _as_one(first: Write, *others: Write) -> sa.Select[Any]:
    written = _first(first).returning(sa.literal_column("1").label("written")).cte("first_write")
    beside = [_beside(write, number, written) for number, write in enumerate(others, 1)]
    found = beside[-1] if others and isinstance(others[-1], Update) and others[-1].returning else written
    return sa.select(found).add_cte(*beside)


def _first(write: Write) -> sa.Insert | sa.Update:
    values = dict(_parameters(0, write))
    match write:
        case Insert(table=table, unless_exists=unless_exists):
            insert = postgresql.insert(table).values(values)
            return insert.on_conflict_do_nothing() if unless_exists else insert
        case Update(table=table, where=where, computed=computed):
            return sa.update(table).where(where).values(values | dict(computed))


def _beside(write: Write, number: int, written: sa.CTE) -> sa.CTE:
    values = dict(_parameters(number, write))
    match write:
        case Insert(table=table):
            source = sa.select(*values.values()).select_from(written)
            return sa.insert(table).from_select(list(values), source).cte(f"write_{number}")
        case Update(table=table, where=where, computed=computed):
            guarded = sa.update(table).where(where, sa.select(written.c.written).exists())
            update = guarded.values(values | dict(computed))
            return (update.returning(table) if write.returning else update).cte(f"write_{number}")


def _parameters(number: int, write: Write) -> Iterator[tuple[str, sa.BindParameter[Any]]]:
    for column, name in _names(number, write).items():
        yield column, sa.bindparam(name, type_=write.table.c[column].type)


@cache
def _names(number: int, write: Write) -> dict[str, str]:
    """The names of the parameters, by column. They have a number, since two writes may set columns of the same name."""
    return {column: f"{column}_of_{number}" for column in write.columns}
