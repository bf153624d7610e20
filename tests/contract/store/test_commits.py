"""A commit of unknown outcome: whoever wrote is told, and the ids that it made itself tell what has happened."""

import asyncio
import contextlib
import resource
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from tests.contract.store.races import started_and_blocked
from tests.contract.store.severing import Cut, Relay, relay_before
from tests.contract.store.states import (
    AT,
    TOTALS,
    accepted,
    assistant_turn,
    claim,
    claimed,
    completed,
    contents,
    held,
    new_turn,
    registered,
    run_row,
    settle,
    settled,
)
from tests.databases import on_postgres, on_sqlite, transaction

from runyard.db.engine import Database, sync_engine
from runyard.db.tables import agent_inputs, agent_invocations
from runyard.db.turns import append_turn, load_held, load_messages
from runyard.db.workers import OwnRun, beat
from runyard.errors import CommitUnknown
from runyard.lifecycle.accept import accept_turn, commit_turn
from runyard.lifecycle.new_turn import NewTurn
from runyard.runs import RunStatus

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
@pytest.mark.parametrize("kind", ["new", "session", "continued"])
async def test_an_acceptance_is_tried_again_with_its_own_ids(
    relay: Relay, far_database: Database, database_url: str, cut: Cut, kind: str
) -> None:
    turn = await turn_of_kind(far_database, database_url, kind)
    before = await invocations(far_database)
    relay.cut = cut
    with pytest.raises(CommitUnknown):
        await commit_turn(far_database, turn)
    found = await invocations(far_database)
    assert (turn.invocation_id in found) == (cut is Cut.AFTER)
    run_id = (await commit_turn(far_database, turn)).run_id
    assert found.get(turn.invocation_id, run_id) == run_id
    assert await invocations(far_database) == {**before, turn.invocation_id: run_id}
    assert (await run_row(far_database, run_id)).status is RunStatus.QUEUED


@on_postgres
@pytest.mark.parametrize("kind", ["new", "session", "continued"])
@pytest.mark.parametrize("outcome", ["commit", "rollback"])
async def test_an_acceptance_tried_again_waits_for_the_first(
    database: Database, rival: Database, database_url: str, kind: str, outcome: str
) -> None:
    """The server may still be busy with the commit whose answer was lost: a plain read would find nothing yet."""
    turn = await turn_of_kind(database, database_url, kind)
    before = await invocations(database)
    async with transaction(database) as in_doubt:
        await accept_turn(in_doubt, turn)
        async with started_and_blocked(rival, commit_turn(rival, turn)) as again:
            await (in_doubt.commit() if outcome == "commit" else in_doubt.rollback())
    assert await invocations(database) == {**before, turn.invocation_id: again.result().run_id}


async def test_an_acceptance_is_found_after_its_run_has_gone_on(database: Database, database_url: str) -> None:
    turn = new_turn()
    run_id = (await commit_turn(database, turn)).run_id
    found = await claimed(database, registered(database_url))
    await database.write(settle, held(found), completed(), at=AT + 2)
    await commit_turn(database, new_turn(continues=run_id))
    before = await contents(database)
    assert (await commit_turn(database, turn)).run_id == run_id
    assert await contents(database) == before


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
    assert held_runs == ([OwnRun(id=run.id, generation=1, cancel_requested=False)] if cut is Cut.AFTER else [])
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
    run, _ = await far_database.read(load_held, held(found))
    rows = [row.seq for row in await far_database.read(load_messages, found.run.id)]
    assert rows[-1] == run.last_seq
    assert rows == ([1, 2] if cut is Cut.AFTER else [1])
    following = assistant_turn(len(rows) + 1)
    await far_database.write(append_turn, held(found), following, [], TOTALS, at=AT + 3)


@on_postgres
async def test_a_run_loaded_anew_waits_for_the_write_in_doubt(
    database: Database, rival: Database, database_url: str
) -> None:
    await accepted(database)
    found = await claimed(database, registered(database_url))
    async with transaction(database) as in_doubt:
        await append_turn(in_doubt, held(found), assistant_turn(), [], TOTALS, at=AT + 2)
        async with started_and_blocked(rival, rival.read(load_held, held(found))) as loading:
            await in_doubt.commit()
    run, invocation = loading.result()
    assert (run.last_seq, invocation.steps) == (2, TOTALS.steps)


@on_sqlite
async def test_a_disk_that_fails_at_the_commit(database: Database, sqlite_file: Path) -> None:
    await accepted(database)
    before = await contents(database)
    turn = new_turn()
    with full_disk_at_commit(database, sqlite_file.with_name("runyard.db-wal")), pytest.raises(CommitUnknown):
        await commit_turn(database, turn)
    assert await contents(database) == before
    await commit_turn(database, turn)


@pytest.mark.parametrize("kind", ["new", "session"])
async def test_a_caller_that_is_cancelled_at_its_commit(database: Database, database_url: str, kind: str) -> None:
    """The cancellation comes once the commit is under way: all of it is there, or nothing, and the next call works."""
    turn = await turn_of_kind(database, database_url, kind)
    task = asyncio.ensure_future(commit_turn(database, turn))
    is_one_statement = kind == "new" and not database.is_sqlite

    def cancel(*_: Any) -> None:
        task.cancel()

    event = "before_cursor_execute" if is_one_statement else "commit"
    sa.event.listen(database._engine.sync_engine, event, cancel)
    with pytest.raises(asyncio.CancelledError):
        await task
    sa.event.remove(database._engine.sync_engine, event, cancel)
    await commit_turn(database, turn)
    assert await invocations(database) == {turn.invocation_id: turn.run_id}


async def turn_of_kind(database: Database, database_url: str, kind: str) -> NewTurn:
    match kind:
        case "session":
            return new_turn(session_id="s1")
        case "continued":
            return new_turn(continues=await settled(database, database_url))
        case _:
            return new_turn()


async def invocations(database: Database) -> dict[str, str]:
    """Each invocation's run; every one has exactly one input."""

    async def load(connection: Any) -> dict[str, str]:
        rows = await connection.execute(
            sa.select(agent_invocations.c.id, agent_invocations.c.run_id).join(
                agent_inputs, agent_inputs.c.invocation_id == agent_invocations.c.id
            )
        )
        found = rows.all()
        assert len({row.id for row in found}) == len(found)
        return {row.id: row.run_id for row in found}

    return await database.read(load)


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
