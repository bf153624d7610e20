"""Several writes in one round trip: one statement on Postgres, one after the other on SQLite, which has no such
statement.

A transaction of small statements spends most of its time, and of the CPU that it costs, on their round trips.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlalchemy.sql.selectable import HasCTE


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


@dataclass(frozen=True, kw_only=True, eq=False)
class InsertRows:
    """Any number of rows, at least one. The value of `rows` is a list of their values by column.

    One write for each row would do the same, but a statement of a hundred takes seconds to be made.
    """

    table: sa.Table
    columns: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, eq=False)
class UpdateRows:
    """Any number of rows, at least one, each set to values of its own. The value of `rows` is a list of those by
    column, with the values of `keys`, by which each row is found.
    """

    table: sa.Table
    columns: tuple[str, ...]
    keys: tuple[str, ...]
    where: sa.ColumnElement[bool]


@dataclass(frozen=True, kw_only=True, eq=False)
class Lock:
    """Locks a row and changes nothing in it: only for the first of several writes."""

    table: sa.Table
    where: sa.ColumnElement[bool]


Write = Insert | Update | InsertRows | UpdateRows
"""To be made at import: statements that are made of it are cached for as long as the process lives."""

Values = Mapping[str, Any]
"""Values by column, and those of the parameters of `where` and `computed`."""


First = tuple[Insert | Update | Lock, Values]
Work = tuple[Write, Values]


async def write_together(connection: AsyncConnection, first: First, *others: Work) -> bool:
    """Returns whether the first write found its row. If it did not, nothing is written.

    On Postgres, all writes see the tables as they were before the statement. Only whether the others happen depends on
    what the first one has found under its lock.
    """
    if connection.dialect.name == "postgresql":
        return await _at_once(connection, first, *others) is not None
    return await _one_by_one(connection, first, *others) is not None


async def write_returning(connection: AsyncConnection, first: First, *others: Work) -> sa.Row[Any] | None:
    """As `write_together`, if the last write is an Update with `returning`: returns the row that it changed."""
    if connection.dialect.name == "postgresql":
        return await _at_once(connection, first, *others)
    result = await _one_by_one(connection, first, *others)
    return None if result is None else result.one()


async def _at_once(connection: AsyncConnection, first: First, *others: Work) -> sa.Row[Any] | None:
    parameters: dict[str, Any] = {}
    for number, (write, values) in enumerate((first, *others)):
        parameters |= _named(number, write, values)
    statement = _as_one(first[0], *(write for write, _ in others))
    row: sa.Row[Any] | None = (await connection.execute(statement, parameters)).one_or_none()
    return row


async def _one_by_one(connection: AsyncConnection, first: First, *others: Work) -> sa.CursorResult[Any] | None:
    write, values = first
    result = await connection.execute(_alone(0, write), _named(0, write, values))
    if (result.one_or_none() is None) if isinstance(write, Lock) else (result.rowcount == 0):
        return None
    for number, (other, values) in enumerate(others, 1):
        result = await connection.execute(_alone(number, other), _alone_named(number, other, values))
    return result


def _named(number: int, write: Write | Lock, values: Values) -> dict[str, Any]:
    names = _names(number, write)
    return {names.get(name, name): value for name, value in values.items()}


def _alone_named(number: int, write: Write, values: Values) -> dict[str, Any] | list[dict[str, Any]]:
    if isinstance(write, Insert | Update):
        return _named(number, write, values)
    shared = {name: value for name, value in values.items() if name != "rows"}
    return [shared | {f"{column}_of_{number}": value for column, value in row.items()} for row in values["rows"]]


@cache
def _alone(number: int, write: Write | Lock) -> sa.Executable:
    match write:
        case Lock():
            return _lock(write)
        case Insert():
            insert = sqlite.insert(write.table).values(_values(number, write))
            return insert.on_conflict_do_nothing() if write.unless_exists else insert
        case Update():
            update = _update(number, write)
            return update.returning(write.table) if write.returning else update
        case InsertRows():
            return sqlite.insert(write.table).values(_values(number, write))
        case UpdateRows():
            keys = [write.table.c[column] == _parameter(number, write, column) for column in write.keys]
            return sa.update(write.table).where(write.where, *keys).values(_values(number, write))


@cache
def _as_one(first: Insert | Update | Lock, *others: Write) -> sa.Select[Any]:
    written = _first(first).cte("first_write")
    beside = [_beside(number, write, written) for number, write in enumerate(others, 1)]
    found = beside[-1] if others and isinstance(others[-1], Update) and others[-1].returning else written
    return sa.select(found).add_cte(*beside)


_WRITTEN: sa.ColumnElement[int] = sa.literal_column("1").label("written")


def _first(write: Insert | Update | Lock) -> HasCTE:
    match write:
        case Lock():
            return _lock(write)
        case Insert():
            insert = postgresql.insert(write.table).values(_values(0, write))
            return (insert.on_conflict_do_nothing() if write.unless_exists else insert).returning(_WRITTEN)
        case Update():
            return _update(0, write).returning(_WRITTEN)


def _beside(number: int, write: Write, written: sa.CTE) -> sa.CTE:
    match write:
        case Insert():
            values = _values(number, write)
            source = sa.select(*values.values()).select_from(written)
            return sa.insert(write.table).from_select(list(values), source).cte(f"write_{number}")
        case Update():
            update = _update(number, write).where(sa.select(written.c.written).exists())
            return (update.returning(write.table) if write.returning else update).cte(f"write_{number}")
        case InsertRows(columns=columns):
            given = _given(number, write, columns)
            source = sa.select(*given.c).select_from(written.join(given, sa.true()))
            return sa.insert(write.table).from_select(list(columns), source).cte(f"write_{number}")
        case UpdateRows(columns=columns, keys=keys):
            given = _given(number, write, (*columns, *keys))
            found = [write.table.c[column] == given.c[column] for column in keys]
            update = sa.update(write.table).where(write.where, *found, sa.select(written.c.written).exists())
            return update.values({column: given.c[column] for column in columns}).cte(f"write_{number}")


def _given(number: int, write: InsertRows | UpdateRows, columns: tuple[str, ...]) -> sa.TableValuedAlias:
    """The rows of one parameter, so that the statement is the same however many there are."""
    rows = sa.func.json_to_recordset(sa.bindparam(f"rows_of_{number}", type_=sa.JSON))
    typed = [sa.column(column, write.table.c[column].type) for column in columns]
    return rows.table_valued(*typed).render_derived(with_types=True)


def _lock(write: Lock) -> sa.Select[Any]:
    return sa.select(_WRITTEN).select_from(write.table).where(write.where).with_for_update()


def _update(number: int, write: Update) -> sa.Update:
    return sa.update(write.table).where(write.where).values(_values(number, write) | dict(write.computed))


def _values(number: int, write: Write) -> dict[str, sa.ColumnElement[Any]]:
    return {column: _parameter(number, write, column) for column in write.columns}


def _parameter(number: int, write: Write, column: str) -> sa.BindParameter[Any]:
    return sa.bindparam(f"{column}_of_{number}", type_=write.table.c[column].type)


@cache
def _names(number: int, write: Write | Lock) -> dict[str, str]:
    """The names of the parameters, by column. They have a number, since two writes may set columns of the same name."""
    match write:
        case Lock():
            return {}
        case Insert(columns=columns) | Update(columns=columns):
            return {column: f"{column}_of_{number}" for column in columns}
        case InsertRows() | UpdateRows():
            return {"rows": f"rows_of_{number}"}
