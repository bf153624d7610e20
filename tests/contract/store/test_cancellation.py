"""A caller cancelled in the middle of a transaction: nothing of it stays, neither rows nor locks nor links."""

import asyncio
import gc
from collections.abc import Iterator
from typing import Any

import anyio
import pytest
import sqlalchemy as sa
from tests.contract.store.races import GUARD_S, started_and_blocked
from tests.contract.store.states import contents, new_turn
from tests.databases import on_sqlite, transaction

from runyard.db import engine
from runyard.db.engine import Database
from runyard.db.tables import agent_runs
from runyard.lifecycle.accept import accept_turn

pytestmark = pytest.mark.anyio


async def test_cancelled_between_two_statements(database: Database, rival: Database) -> None:
    written = asyncio.Event()

    async def accept_and_dally(connection: Any) -> None:
        await accept_turn(connection, new_turn())
        written.set()
        await asyncio.Event().wait()

    task = asyncio.ensure_future(database.write(accept_and_dally))
    with anyio.fail_after(GUARD_S):
        await written.wait()
    await cancel(task)
    await assert_nothing_stays(database, rival)


async def test_cancelled_while_it_waits_for_a_lock(database: Database, rival: Database) -> None:
    turn = new_turn(session_id="s1")
    async with transaction(database) as holder:
        await accept_turn(holder, turn)
        async with started_and_blocked(rival, rival.write(accept_turn, new_turn(session_id="s1"))) as task:
            task.cancel()
            await holder.rollback()
    assert task.cancelled()
    await assert_nothing_stays(rival, database)


async def test_cancelled_in_a_read(database: Database, rival: Database) -> None:
    begun = asyncio.Event()

    async def dally(connection: Any) -> None:
        await connection.execute(sa.text("SELECT 1"))
        begun.set()
        await asyncio.Event().wait()

    task = asyncio.ensure_future(database.read(dally))
    with anyio.fail_after(GUARD_S):
        await begun.wait()
    await cancel(task)
    await assert_nothing_stays(database, rival)


async def test_cancelled_by_a_scope_that_cancels_each_wait(database: Database, rival: Database) -> None:
    """anyio cancels again at every await until its scope has ended, those of the clean-up included."""

    async def accept_and_stop(connection: Any, scope: anyio.CancelScope) -> None:
        await accept_turn(connection, new_turn())
        scope.cancel()
        await connection.execute(sa.text("SELECT 1"))

    with anyio.CancelScope() as scope:
        await database.write(accept_and_stop, scope)
    assert scope.cancelled_caught
    await assert_nothing_stays(database, rival)


@pytest.fixture
def uncollected(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What a cancelled task remembers is not swept up behind the test's back; a lock that stays is not waited for."""
    monkeypatch.setattr(engine, "SQLITE_BUSY_TIMEOUT_MS", 2_000)
    gc.disable()
    yield
    gc.enable()


async def test_cancelled_at_any_step(uncollected: None, database_url: str) -> None:
    """Whichever of its statements the transaction is waiting for, and though the task is remembered afterwards."""
    database, rival = Database(database_url, pool_size=1), Database(database_url, pool_size=1)
    turn = new_turn()
    remembered: list[asyncio.Future[Any]] = []
    while True:
        await database.write(touch)  # whose link the next one takes
        task = asyncio.ensure_future(database.write(accept_and_fail, turn))
        for _ in remembered:
            await asyncio.sleep(0)
        if task.done():
            break
        await cancel(task)
        remembered.append(task)
        await rival.write(touch)
    assert isinstance(task.exception(), LookupError)
    assert len(remembered) > 5
    await assert_nothing_stays(database, rival)
    await database.close()
    await rival.close()


@on_sqlite
async def test_cancelled_in_the_line_of_writers(database: Database, rival: Database) -> None:
    """Within a process, writers of a file queue for a lock of ours; whoever leaves the line does not hold it up."""
    may_end = asyncio.Event()

    async def dally(_connection: Any) -> None:
        await may_end.wait()

    first = asyncio.ensure_future(database.write(dally))
    second, third = (asyncio.ensure_future(database.write(accept_and_fail, new_turn())) for _ in range(2))
    await asyncio.sleep(0)
    await cancel(second)
    may_end.set()
    await first
    with anyio.fail_after(GUARD_S), pytest.raises(LookupError):
        await third
    await assert_nothing_stays(database, rival)


async def accept_and_fail(connection: Any, turn: Any) -> None:
    await accept_turn(connection, turn)
    raise LookupError


async def touch(connection: Any) -> None:
    await connection.execute(sa.update(agent_runs).values(steps=0))


async def cancel(task: asyncio.Future[Any]) -> None:
    task.cancel()
    with anyio.fail_after(GUARD_S), pytest.raises(asyncio.CancelledError):
        await task


async def assert_nothing_stays(database: Database, rival: Database) -> None:
    with anyio.fail_after(GUARD_S):
        assert set(map(len, (await contents(database)).values())) == {0}
        pool: Any = database._engine.sync_engine.pool
        assert pool.checkedout() == 0
        await rival.write(accept_turn, new_turn(session_id="s1"))  # waits for no lock
        await database.write(accept_turn, new_turn(session_id="s2"))
