"""Deleting old rows, by the database's clock, one batch a transaction. Locked rows are left for a later batch.

Every table that grows is handled here, with these exceptions: `workers` holds only living ones, people make
`service_keys` by hand, and transcripts, inputs and invocations are deleted with their run.
"""

from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from runyard.db.changes import DELETIONS_KEPT_MS
from runyard.db.erasure import delete_runs
from runyard.db.idempotency import KEPT_MS
from runyard.db.now import database_now_ms
from runyard.db.records import Run
from runyard.db.tables import (
    AT_REST,
    agent_calls,
    agent_deletions,
    agent_invocations,
    agent_manifests,
    agent_runs,
    idempotency_keys,
)

RUNS_A_BATCH = 20
"""Few, since a run may have thousands of rows."""

LEDGERS_A_BATCH = 100
ROWS_A_BATCH = 500

CLOCKS_APART_MS = 3_600_000
KEYS_AGE_MS = KEPT_MS + CLOCKS_APART_MS
DELETIONS_AGE_MS = DELETIONS_KEPT_MS + CLOCKS_APART_MS
"""Keys and deletions are used for a day by the gateways' clocks, which may be behind the database's."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Forgotten:
    """What one batch deleted. `streams`: ids of streams that can be deleted now. `more`: the batch was full."""

    rows: int
    more: bool
    streams: tuple[str, ...] = ()


_before = sa.bindparam("before", type_=sa.BigInteger)
_old_runs = (
    sa.select(agent_runs)
    .where(AT_REST, agent_runs.c.last_activity_at < _before)
    .order_by(agent_runs.c.last_activity_at)
    .limit(RUNS_A_BATCH)
    .with_for_update(skip_locked=True)
)
_old_ledgers = (
    sa.select(agent_invocations.c.id, agent_invocations.c.run_id)
    .join(agent_runs)
    .where(
        agent_invocations.c.settled_at.is_not(None),
        agent_invocations.c.calls_kept,
        agent_invocations.c.settled_at < _before,
    )
    .order_by(agent_invocations.c.settled_at)
    .limit(LEDGERS_A_BATCH)
    .with_for_update(of=agent_runs, skip_locked=True)
)
_invocations: sa.BindParameter[list[str]] = sa.bindparam("invocations", expanding=True)
_delete_calls = sa.delete(agent_calls).where(
    agent_calls.c.run_id.in_(sa.bindparam("runs", expanding=True)), agent_calls.c.invocation_id.in_(_invocations)
)
_calls_gone = sa.update(agent_invocations).where(agent_invocations.c.id.in_(_invocations))


@dataclass(frozen=True, slots=True)
class _Old:
    """The statements of one batch: `find` locks the oldest rows, `delete` deletes them by key. (In a single statement
    Postgres would search the whole table for the batch's keys.)
    """

    find: sa.Select[Any]
    delete: sa.Delete


def _old(table: sa.Table, since: sa.Column[int], *conditions: sa.ColumnElement[bool]) -> _Old:
    key = list(table.primary_key)
    return _Old(
        find=sa.select(*(column.label(f"old_{column.name}") for column in key))
        .where(since < _before, *conditions)
        .order_by(since)
        .limit(ROWS_A_BATCH)
        .with_for_update(skip_locked=True),
        delete=sa.delete(table).where(*(column == sa.bindparam(f"old_{column.name}") for column in key)),
    )


_newest_old_deletion = (
    sa.select(sa.func.max(agent_deletions.c.changed_xid)).where(agent_deletions.c.deleted_at < _before)
).scalar_subquery()
_old_keys = _old(idempotency_keys, idempotency_keys.c.created_at)
_old_deletions = _old(
    agent_deletions, agent_deletions.c.deleted_at, agent_deletions.c.changed_xid < _newest_old_deletion
)
_old_manifests = _old(agent_manifests, agent_manifests.c.last_seen)


async def forget_runs(connection: AsyncConnection, *, age_ms: int) -> Forgotten:
    """Delete runs at rest that were last active this long ago, with all that belongs to them, and tell the feed."""
    now_ms = await database_now_ms(connection)
    rows = await connection.execute(_old_runs, {"before": now_ms - age_ms})
    runs = [Run(**row._mapping) for row in rows]
    streams = await delete_runs(connection, runs, at=now_ms) if runs else []
    return Forgotten(rows=len(runs), more=len(runs) == RUNS_A_BATCH, streams=tuple(streams))


async def forget_calls(connection: AsyncConnection, *, age_ms: int) -> Forgotten:
    """Delete the tool calls of invocations that were settled this long ago; their results stay in the transcript."""
    now_ms = await database_now_ms(connection)
    settled = (await connection.execute(_old_ledgers, {"before": now_ms - age_ms})).all()
    if not settled:
        return Forgotten(rows=0, more=False)
    of_these = {"invocations": [row.id for row in settled]}
    runs = list({row.run_id for row in settled})
    deleted = await connection.execute(_delete_calls, {"runs": runs, **of_these})
    await connection.execute(_calls_gone, {"calls_kept": False, **of_these})
    return Forgotten(rows=deleted.rowcount, more=len(settled) == LEDGERS_A_BATCH)


async def forget_manifests(connection: AsyncConnection, *, age_ms: int) -> Forgotten:
    """Delete manifests that no worker has had for this long."""
    return await _forget_rows(connection, _old_manifests, age_ms)


async def forget_keys(connection: AsyncConnection, *, age_ms: int = KEYS_AGE_MS) -> Forgotten:
    """Delete idempotency keys that no call can use any more."""
    return await _forget_rows(connection, _old_keys, age_ms)


async def forget_deletions(connection: AsyncConnection, *, age_ms: int = DELETIONS_AGE_MS) -> Forgotten:
    """Delete the deletions that the feed no longer reports, except for the newest of them, which tells how far back the
    feed goes (`runyard.db.changes.forgotten_below`).
    """
    return await _forget_rows(connection, _old_deletions, age_ms)


async def _forget_rows(connection: AsyncConnection, old: _Old, age_ms: int) -> Forgotten:
    found = await connection.execute(old.find, {"before": await database_now_ms(connection) - age_ms})
    keys = [dict(row._mapping) for row in found]
    if keys:
        await connection.execute(old.delete, keys)
    return Forgotten(rows=len(keys), more=len(keys) == ROWS_A_BATCH)
