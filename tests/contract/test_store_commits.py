"""A commit of unknown outcome: whoever wrote is told, and the ids that it made itself tell what has happened."""

import asyncio
import contextlib
import resource
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from tests.contract.severing import Cut, Relay, relay_before
from tests.contract.store import (
    AT,
    TOTALS,
    accepted,
    assistant_turn,
    claim,
    claimed,
    contents,
    held,
    new_turn,
    registered,
)
from tests.databases import on_postgres, on_sqlite

from runyard.db import reads
from runyard.db.accept import accept_turn
from runyard.db.engine import Database, sync_engine
from runyard.db.turns import append_turn, load_messages
from runyard.db.workers import beat
from runyard.errors import CommitUnknown

pytestmark = pytest.mark.anyio

both_cuts = pytest.mark.parametrize("cut", Cut)


@pytest.fixture
async def relay(database_url: str) -> AsyncIterator[Relay]:
    async with relay_before(database_url) as relay:
        yield relay


@pytest.fixture
async def far_database(relay: Relay) -> AsyncIterator[Database]:
    """The database behind a link that can be cut."""
    opened = Database(relay.url, pool_size=2)
    yield opened
    await opened.close()


@on_postgres
@both_cuts
async def test_an_acceptance_is_looked_up_by_its_invocation(relay: Relay, far_database: Database, cut: Cut) -> None:
    turn = new_turn()
    relay.cut = cut
    with pytest.raises(CommitUnknown):
        await far_database.write(accept_turn, turn)
    found = await far_database.read(reads.accepted_run, turn.invocation_id)
    assert found == (turn.run_id if cut is Cut.AFTER else None)
    if found is None:
        await far_database.write(accept_turn, turn)
    rows = await contents(far_database)
    assert (len(rows["agent_runs"]), len(rows["agent_invocations"]), len(rows["agent_inputs"])) == (1, 1, 1)


@on_postgres
@both_cuts
async def test_a_claim_is_found_by_the_beat(
    relay: Relay, far_database: Database, database: Database, database_url: str, cut: Cut
) -> None:
    worker = registered(database_url)
    run = await accepted(database)
    relay.cut = cut
    with pytest.raises(CommitUnknown):
        await claim(far_database, worker)
    engine = sync_engine(database_url)
    with engine.begin() as connection:
        held_runs = beat(connection, worker)
    engine.dispose()
    assert held_runs == ({run.id: 1} if cut is Cut.AFTER else {})
    assert (await claim(far_database, worker) is None) == (cut is Cut.AFTER)


@on_postgres
@both_cuts
async def test_a_turn_is_found_in_the_transcript(
    relay: Relay, far_database: Database, database_url: str, cut: Cut
) -> None:
    """A worker throws away what it has in memory and loads the run anew, at the generation it holds."""
    await accepted(far_database)
    found = await claimed(far_database, registered(database_url))
    relay.cut = cut
    with pytest.raises(CommitUnknown):
        await far_database.write(append_turn, held(found), assistant_turn(), [], TOTALS, at=AT + 2)
    rows = [row.seq for row in await far_database.read(load_messages, found.run.id)]
    assert rows == ([1, 2] if cut is Cut.AFTER else [1])
    following = assistant_turn(len(rows) + 1)
    await far_database.write(append_turn, held(found), following, [], TOTALS, at=AT + 3)


@on_sqlite
async def test_a_disk_that_fails_at_the_commit(database: Database, tmp_path: Path) -> None:
    await accepted(database)
    before = await contents(database)
    turn = new_turn()
    with full_disk_at_commit(database, tmp_path / "runyard.db-wal"), pytest.raises(CommitUnknown):
        await database.write(accept_turn, turn)
    assert await database.read(reads.accepted_run, turn.invocation_id) is None
    assert await contents(database) == before
    await database.write(accept_turn, turn)


async def test_a_caller_that_is_cancelled_at_its_commit(database: Database) -> None:
    """The cancellation comes once the commit is under way: all of it is there, or nothing, and the next call works."""
    turn = new_turn()
    task = asyncio.ensure_future(database.write(accept_turn, turn))

    def cancel(_connection: Any) -> None:
        task.cancel()

    sa.event.listen(database._engine.sync_engine, "commit", cancel)
    with pytest.raises(asyncio.CancelledError):
        await task
    sa.event.remove(database._engine.sync_engine, "commit", cancel)
    if await database.read(reads.accepted_run, turn.invocation_id) is None:
        await database.write(accept_turn, turn)
    rows = await contents(database)
    assert (len(rows["agent_runs"]), len(rows["agent_invocations"]), len(rows["agent_inputs"])) == (1, 1, 1)


@contextlib.contextmanager
def full_disk_at_commit(database: Database, log: Path) -> Iterator[None]:
    """From the next commit on, no file of this process can grow beyond the size of SQLite's log."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)

    def fill(_connection: Any) -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (log.stat().st_size, hard))

    sa.event.listen(database._engine.sync_engine, "commit", fill)
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        sa.event.remove(database._engine.sync_engine, "commit", fill)
