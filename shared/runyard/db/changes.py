"""What the feed reads: changes to a caller's runs and transcripts, complete below a mark (`runyard.db.marks`).

A run that changed several times is reported once, as it is now. Deletions are reported for a day; a cursor older than a
deletion that was forgotten is refused.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, TypeVar

import orjson
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from runyard.db.marks import CurrentMark
from runyard.db.records import Input, Message, Run
from runyard.db.scope import Scope
from runyard.db.tables import agent_deletions, agent_inputs, agent_invocations, agent_messages, agent_runs

Value = TypeVar("Value", Run, Message, "Deletion")

DELETIONS_KEPT_MS = 86_400_000
PAGE = 200


@dataclass(frozen=True, kw_only=True, slots=True)
class Horizon:
    """How far the feed can be read. Below `mark` nothing new can appear any more. No mark from `newest` on exists."""

    mark: int
    newest: int


@dataclass(frozen=True, kw_only=True, slots=True)
class ChangedRun:
    run: Run
    stream_id: str | None
    waiting: tuple[Input, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Deletion:
    """A deleted run; `whole_run` false: only its transcript was deleted."""

    run_id: str
    whole_run: bool
    deleted_at: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Change:
    mark: int
    tenant_id: str
    user_id: str
    what: ChangedRun | Message | Deletion


@dataclass(frozen=True, kw_only=True, slots=True)
class Changes:
    """In the order of their marks, complete below `until`."""

    changes: list[Change]
    until: int


def _between(mark: sa.ColumnElement[int]) -> sa.ColumnElement[bool]:
    return sa.and_(mark >= sa.bindparam("since"), mark < sa.bindparam("before"))


_runs = (
    sa.select(agent_runs, agent_invocations.c.stream_id)
    .outerjoin(agent_invocations, agent_invocations.c.id == agent_runs.c.invocation_id)
    .where(_between(agent_runs.c.changed_xid))
    .order_by(agent_runs.c.changed_xid, agent_runs.c.id)
)
_messages = (
    sa.select(agent_messages, agent_runs.c.tenant_id, agent_runs.c.user_id)
    .join(agent_runs)
    .where(_between(agent_messages.c.changed_xid))
    .order_by(agent_messages.c.changed_xid, agent_messages.c.run_id, agent_messages.c.seq)
)
_deletions = (
    sa.select(agent_deletions)
    .where(_between(agent_deletions.c.changed_xid))
    .order_by(agent_deletions.c.changed_xid, agent_deletions.c.run_id)
)
_waiting = (
    sa.select(agent_inputs)
    .where(agent_inputs.c.run_id.in_(sa.bindparam("runs", expanding=True)), agent_inputs.c.folded_in_seq.is_(None))
    .order_by(agent_inputs.c.position)
)
_forgotten = sa.select(sa.func.coalesce(sa.func.max(agent_deletions.c.changed_xid), 0)).where(
    agent_deletions.c.deleted_at < sa.bindparam("until")
)
_forget_deletions = sa.delete(agent_deletions).where(agent_deletions.c.run_id.in_(sa.bindparam("runs", expanding=True)))
_insert_deletions = sa.insert(agent_deletions)
_LISTED = {
    "postgresql": "SELECT pair->>0 AS tenant, pair->>1 AS owner FROM json_array_elements(CAST(:{0} AS json)) AS pair",
    "sqlite": "SELECT value->>0 AS tenant, value->>1 AS owner FROM json_each(:{0})",
}


async def horizon(connection: AsyncConnection) -> Horizon:
    if connection.dialect.name == "sqlite":
        mark = int((await connection.execute(sa.select(CurrentMark()))).scalar_one())
        return Horizon(mark=mark, newest=mark)
    row = (await connection.execute(_postgres_horizon)).one()
    return Horizon(mark=row.oldest, newest=row.newest)


def _as_number(snapshot_part: sa.ColumnElement[Any]) -> sa.ColumnElement[int]:
    return sa.cast(sa.cast(snapshot_part, sa.Text), sa.BigInteger)


_snapshot = sa.func.pg_current_snapshot()
_postgres_horizon = sa.select(
    _as_number(sa.func.pg_snapshot_xmin(_snapshot)).label("oldest"),
    _as_number(sa.func.pg_snapshot_xmax(_snapshot)).label("newest"),
)


async def forgotten_below(connection: AsyncConnection, *, at: int) -> int:
    """The mark up to which a reader must have read: below it, deletions are no longer reported."""
    return int((await connection.execute(_forgotten, {"until": at - DELETIONS_KEPT_MS})).scalar_one())


async def tell_deleted(connection: AsyncConnection, runs: Sequence[Run], *, whole_run: bool, at: int) -> None:
    """Store a row for each deleted run, for the feed to report. The caller holds the run locks."""
    await connection.execute(_forget_deletions, {"runs": [run.id for run in runs]})
    rows = [
        {
            "run_id": run.id,
            "tenant_id": run.tenant_id,
            "user_id": run.user_id,
            "whole_run": whole_run,
            "deleted_at": at,
        }
        for run in runs
    ]
    await connection.execute(_insert_deletions, rows)


async def changes_of(
    connection: AsyncConnection, scopes: Sequence[Scope], *, since: int, before: int, page: int = PAGE
) -> Changes:
    """The changes that these callers may see, with marks from `since` on and below `before`, which is at most the
    horizon's mark.

    Returns about a page of each kind of change, and never only a part of the changes with the same mark.
    """
    asked: dict[str, Any] = {"since": since, "before": before}
    if len(scopes) == 1 and connection.dialect.name == "postgresql":
        of_runs, of_deletions = (_of_one(table, scopes[0]) for table in (agent_runs, agent_deletions))
    else:
        asked |= _owners(scopes)
        of_runs, of_deletions = (_theirs(connection, table) for table in (agent_runs, agent_deletions))
    while True:
        runs = await _read(connection, _runs.where(of_runs).limit(page), asked)
        messages = await _read(connection, _messages.where(of_runs).limit(page), asked)
        deletions = await _read(connection, _deletions.where(of_deletions).limit(page), asked)
        until = min([before, *(rows[-1]["changed_xid"] for rows in (runs, messages, deletions) if len(rows) == page)])
        if until > since:
            break
        page *= 4
    complete = [[row for row in rows if row["changed_xid"] < until] for rows in (runs, messages, deletions)]
    return Changes(changes=await _in_order(connection, *complete), until=until)


async def _read(
    connection: AsyncConnection, statement: sa.Select[Any], asked: Mapping[str, Any]
) -> list[dict[str, Any]]:
    return [dict(row._mapping) for row in await connection.execute(statement, asked)]


def _owners(scopes: Sequence[Scope]) -> dict[str, str]:
    users = [(tenant, scope.user_id) for scope in scopes if scope.user_id is not None for tenant in scope.tenants]
    tenants = [(tenant,) for scope in scopes if scope.user_id is None for tenant in scope.tenants]
    return {"users": orjson.dumps(users).decode(), "tenants": orjson.dumps(tenants).decode()}


def _of_one(owner: sa.Table, scope: Scope) -> sa.ColumnElement[bool]:
    """For a reader who comes back with an old cursor. Postgres' statistics tell how few of the rows since then are of
    this owner, and it reads those instead of everybody's. (SQLite has no such statistics, and few owners.)
    """
    theirs = owner.c.tenant_id.in_(scope.tenants) if len(scope.tenants) > 1 else owner.c.tenant_id == scope.tenants[0]
    return theirs if scope.user_id is None else sa.and_(theirs, owner.c.user_id == scope.user_id)


def _theirs(connection: AsyncConnection, owner: sa.Table) -> sa.ColumnElement[bool]:
    dialect = connection.dialect.name
    return sa.or_(
        sa.tuple_(owner.c.tenant_id, owner.c.user_id).in_(_listed(dialect, "users", "tenant", "owner")),
        owner.c.tenant_id.in_(_listed(dialect, "tenants", "tenant")),
    )


def _listed(dialect: str, name: str, *columns: str) -> sa.Select[Any]:
    """The pairs of a JSON parameter as rows, so that one statement serves any number of callers."""
    pairs = sa.text(_LISTED[dialect].format(name)).columns(sa.column("tenant", sa.Text), sa.column("owner", sa.Text))
    listed = pairs.subquery(f"of_{name}")
    return sa.select(*(listed.c[column] for column in columns))


async def _in_order(
    connection: AsyncConnection,
    runs: Sequence[dict[str, Any]],
    messages: Sequence[dict[str, Any]],
    deletions: Sequence[dict[str, Any]],
) -> list[Change]:
    """In the order of their marks, and within a mark deletions first: a cleared transcript may have new rows."""
    waiting: dict[str, list[Input]] = {}
    if runs:
        for item in await connection.execute(_waiting, {"runs": [row["id"] for row in runs]}):
            waiting.setdefault(item.run_id, []).append(Input(**item._mapping))
    told = [
        *(_change(row, _value(Deletion, row)) for row in deletions),
        *(_change(row, _changed_run(row, waiting.get(row["id"], ()))) for row in runs),
        *(_change(row, _value(Message, row)) for row in messages),
    ]
    return sorted(told, key=lambda change: change.mark)


def _changed_run(row: Mapping[str, Any], waiting: Sequence[Input]) -> ChangedRun:
    return ChangedRun(run=_value(Run, row), stream_id=row["stream_id"], waiting=tuple(waiting))


def _value(kind: type[Value], row: Mapping[str, Any]) -> Value:
    return kind(**{field.name: row[field.name] for field in fields(kind)})


def _change(row: Mapping[str, Any], what: ChangedRun | Message | Deletion) -> Change:
    return Change(mark=row["changed_xid"], tenant_id=row["tenant_id"], user_id=row["user_id"], what=what)
