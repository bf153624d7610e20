"""Two connections brought into a race, in an order that the test decides."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Coroutine
from typing import Any, TypeVar

import anyio
import sqlalchemy as sa

from runyard.db.engine import Database

T = TypeVar("T")

GUARD_S = 30
"""How long a test waits for a signal that must come."""


@contextlib.asynccontextmanager
async def started_and_blocked(rival: Database, work: Coroutine[Any, Any, T]) -> AsyncIterator[asyncio.Task[T]]:
    """`work` on `rival`, begun and waiting for a lock that another connection holds; it is done when the block ends."""
    begun = asyncio.Event()

    def sent(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        if statement == "BEGIN IMMEDIATE":
            begun.set()

    sa.event.listen(rival._engine.sync_engine, "before_cursor_execute", sent)
    task = asyncio.ensure_future(work)
    try:
        with anyio.fail_after(GUARD_S):
            await (begun.wait() if rival.is_sqlite else _until_a_backend_waits(rival))
        assert not task.done()
        yield task
        with anyio.fail_after(GUARD_S):
            await asyncio.wait([task])
    finally:
        task.cancel()
        sa.event.remove(rival._engine.sync_engine, "before_cursor_execute", sent)


async def _until_a_backend_waits(database: Database) -> None:
    async def waiting(connection: Any) -> int:
        statement = (
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
        )
        return int((await connection.execute(sa.text(statement))).scalar_one())

    while await database.read(waiting) == 0:
        pass
