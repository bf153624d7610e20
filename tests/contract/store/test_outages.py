"""The database away: what is tried once more, what is told, and that the same `Database` works again afterwards."""

import asyncio
import contextlib
import socket
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import psycopg
import psycopg.sql
import pytest
import sqlalchemy as sa
from tests.contract.store.races import GUARD_S, started_and_blocked
from tests.contract.store.states import OWNER, accepted, contents, new_turn, run_row
from tests.databases import on_postgres, on_sqlite, postgres_server, transaction
from tests.relay import Relay, relay_before

from runyard.db import engine, postgres, reads
from runyard.db.engine import Database, sync_engine
from runyard.db.locks import lock_owned
from runyard.db.tables import agent_messages, agent_runs
from runyard.db.workers import Registration
from runyard.errors import CommitUnknown, StartError, StoreUnavailable
from runyard.ids import new_worker_id
from runyard.lifecycle.accept import accept_turn, commit_turn
from runyard_workers.beat import Beat
from runyard_workers.liveness import Liveness

pytestmark = pytest.mark.anyio


@pytest.fixture
def server() -> Iterator[psycopg.Connection]:
    with postgres_server() as link:
        yield link


@on_postgres
async def test_dead_links_are_replaced_without_a_word(database: Database, server: psycopg.Connection) -> None:
    """After a restart of the server every link of the pool is dead, and none of them knows."""
    for work in (database.write, database.read, database.write_at_once):
        await fill_pool(database)
        end_links(server, database)
        assert await work(one) == 1
    await fill_pool(database)
    end_links(server, database)
    await accepted(database)
    assert len((await contents(database))["agent_runs"]) == 1


@on_postgres
async def test_a_link_that_dies_in_a_transaction_costs_nothing(database: Database, server: psycopg.Connection) -> None:
    turn, tries = new_turn(), []

    async def accept_and_die_once(connection: Any) -> None:
        tries.append((await accept_turn(connection, turn)).run_id)
        if len(tries) == 1:
            end_links(server, database)
        await one(connection)

    await database.write(accept_and_die_once)
    assert tries == [turn.run_id, turn.run_id]
    rows = await contents(database)
    assert (len(rows["agent_runs"]), len(rows["agent_invocations"]), len(rows["agent_inputs"])) == (1, 1, 1)


@on_postgres
async def test_a_link_that_dies_twice_is_told(database: Database, server: psycopg.Connection) -> None:
    tries = 0

    async def die(connection: Any) -> None:
        nonlocal tries
        tries += 1
        await accept_turn(connection, new_turn())
        end_links(server, database)
        await one(connection)

    for work in (database.write, database.read):
        tries = 0
        with pytest.raises(StoreUnavailable) as caught:
            await work(die)
        assert not isinstance(caught.value, CommitUnknown)
        assert tries == 2
    await database.write(one)


@on_postgres
async def test_the_server_ends_a_frozen_process_transaction(database: Database, server: psycopg.Connection) -> None:
    """Its locks go with it; when it wakes, its transaction runs again and finds what has become of the run."""
    run = await accepted(database)
    tries = 0

    async def freeze_once(connection: Any) -> None:
        nonlocal tries
        tries += 1
        locked = await lock_owned(connection, run.id, OWNER)
        assert locked is not None
        if tries == 1:
            pid = await backend(connection)
            await connection.execute(sa.text("SET LOCAL idle_in_transaction_session_timeout = '20ms'"))
            freeze_until_ended(server, pid)
        await connection.execute(sa.update(agent_runs).values(title="awake"))

    await database.write(freeze_once)
    assert tries == 2
    assert (await run_row(database, run.id)).title == "awake"


@on_postgres
async def test_every_link_has_the_time_limit_of_a_frozen_transaction(database: Database, database_url: str) -> None:
    async def limit(connection: Any) -> str:
        return str((await connection.execute(sa.text(SHOW_LIMIT))).scalar_one())

    assert await database.read(limit) == "5s"
    assert await database.write(limit) == "5s"
    blocking = sync_engine(database_url)
    with blocking.connect() as connection:
        assert connection.execute(sa.text(SHOW_LIMIT)).scalar_one() == "5s"
    blocking.dispose()


SHOW_LIMIT = "SHOW idle_in_transaction_session_timeout"


@on_postgres
async def test_a_read_leaves_no_link_that_commits_by_itself(database_url: str) -> None:
    """Reads run in autocommit; the same link must be transactional for the write that comes after."""
    database = Database(database_url, pool_size=1)
    pids = {await database.read(backend), await database.write(backend), await database.read(backend)}
    assert len(pids) == 1

    async def fail_late(connection: Any) -> None:
        await accept_turn(connection, new_turn())
        raise LookupError

    with pytest.raises(LookupError):
        await database.write(fail_late)
    assert (await contents(database))["agent_runs"] == []
    await database.close()


class Standby:
    """Makes the database refuse writes, as a standby does: for the links that are opened from now on."""

    def __init__(self, server: psycopg.Connection, database_url: str) -> None:
        self._server = server
        self._name = psycopg.sql.Identifier(str(sa.make_url(database_url).database))

    def begin(self) -> None:
        statement = psycopg.sql.SQL("ALTER DATABASE {} SET default_transaction_read_only = on")
        self._server.execute(statement.format(self._name))

    def end(self) -> None:
        statement = psycopg.sql.SQL("ALTER DATABASE {} RESET default_transaction_read_only")
        self._server.execute(statement.format(self._name))


@pytest.fixture
def standby(database_url: str, server: psycopg.Connection) -> Iterator[Standby]:
    standby = Standby(server, database_url)
    yield standby
    standby.end()


@on_postgres
async def test_a_database_that_refuses_writes_is_unavailable_until_it_takes_them(
    database: Database, server: psycopg.Connection, standby: Standby
) -> None:
    await accepted(database)
    before = await contents(database)
    standby.begin()
    end_links(server, database)
    with pytest.raises(StoreUnavailable):
        await database.read(reads.check_writable)
    for turn in (new_turn(), new_turn(session_id="s1"), new_turn()):  # one statement, and a transaction of several
        with pytest.raises(StoreUnavailable) as caught:
            await commit_turn(database, turn)
        assert not isinstance(caught.value, CommitUnknown)
    await fill_pool(database)
    assert await contents(database) == before
    standby.end()
    await commit_turn(database, new_turn())  # though every link of the pool still leads to the standby
    assert len((await contents(database))["agent_runs"]) == 2
    await database.read(reads.check_writable)


@on_postgres
async def test_a_worker_that_cannot_register_says_in_one_line_why(database_url: str, standby: Standby) -> None:
    standby.begin()
    beat = Beat(
        database_url,
        lambda: Registration(worker_id=new_worker_id(), host="host:1", slots=1, queues=("default",), manifests={}),
        liveness=Liveness(),
        on_beat=no_call,
        on_gone=no_call,
        on_given_back=no_call,
    )
    reason = r"^the database does not answer or cannot be written \(RUNYARD_DATABASE_URL\)$"
    with pytest.raises(StartError, match=reason):
        await asyncio.to_thread(beat.start)


def no_call(*_: object) -> None:
    raise AssertionError


@on_postgres
async def test_a_blocking_link_to_a_standby_is_not_kept(
    database: Database, database_url: str, server: psycopg.Connection, standby: Standby
) -> None:
    """The beat has one link: kept, it would fail until the process ends."""
    engine = sync_engine(database_url)
    standby.begin()
    end_links(server, database)
    for _ in range(2):
        with pytest.raises(sa.exc.DBAPIError), engine.begin() as connection:
            connection.execute(sa.delete(agent_runs))
    standby.end()
    with engine.begin() as connection:
        connection.execute(sa.delete(agent_runs))
    engine.dispose()


@pytest.fixture
def quiet_relay(database_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Relay]:
    """Before the server: it can fall silent, which is soon noticed."""
    monkeypatch.setattr(postgres, "CONNECT_S", 2)  # libpq's least
    monkeypatch.setattr(postgres, "ANSWER_S", 2)
    with relay_before(database_url) as relay:
        yield relay


@on_postgres
async def test_a_server_that_falls_silent_is_unavailable_until_it_answers(quiet_relay: Relay) -> None:
    database = Database(quiet_relay.url, pool_size=2)
    for work in (database.read, database.write):
        await work(one)
        quiet_relay.fall_silent()
        with pytest.raises(StoreUnavailable) as caught:
            await work(one)
        assert not isinstance(caught.value, CommitUnknown)
        quiet_relay.recover()
    assert await database.write(one) == 1
    await database.close()


@on_postgres
async def test_a_commit_that_is_not_answered_has_an_unknown_outcome(database: Database, quiet_relay: Relay) -> None:
    far, turn = Database(quiet_relay.url, pool_size=1), new_turn()

    async def accept_into_silence(connection: Any) -> None:
        await accept_turn(connection, turn)
        quiet_relay.fall_silent()

    with pytest.raises(CommitUnknown):
        await far.write(accept_into_silence)
    quiet_relay.recover()
    await commit_turn(far, turn)
    assert len((await contents(database))["agent_runs"]) == 1
    quiet_relay.fall_silent()
    with pytest.raises(CommitUnknown):
        await commit_turn(far, new_turn())  # one statement, which is its own commit
    quiet_relay.recover()
    await far.close()


@on_postgres
async def test_a_blocking_link_that_falls_silent_is_given_up(quiet_relay: Relay) -> None:
    engine = sync_engine(quiet_relay.url, statement_timeout_ms=2000)
    with engine.begin() as connection:
        connection.execute(sa.select(1))
    quiet_relay.fall_silent()
    with pytest.raises(sa.exc.OperationalError), engine.begin() as connection:
        connection.execute(sa.select(1))
    quiet_relay.recover()
    with engine.begin() as connection:
        assert connection.execute(sa.select(1)).scalar_one() == 1
    engine.dispose()


async def test_no_server_is_unavailable() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        database = Database(f"postgresql://postgres@127.0.0.1:{unused.getsockname()[1]}/x", pool_size=1)
        for work in (database.read, database.write, database.write_at_once):
            with pytest.raises(StoreUnavailable):
                await work(one)
        await database.close()


async def test_a_pool_that_is_used_up_is_unavailable(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "POOL_WAIT_S", 0.02)
    database = Database(database_url, pool_size=1)
    async with transaction(database):
        for work in (database.read, database.write, database.write_at_once):
            with pytest.raises(StoreUnavailable):
                await work(one)
    assert await database.write(one) == 1
    await database.close()


@pytest.fixture
def other_process(database_url: str, sqlite_file: Path) -> Iterator[sqlite3.Connection]:
    """A connection that knows nothing of ours."""
    with contextlib.closing(sqlite3.connect(sqlite_file, isolation_level=None)) as connection:
        yield connection


@on_sqlite
async def test_a_writer_waits_for_another_process(database: Database, other_process: sqlite3.Connection) -> None:
    other_process.execute("BEGIN IMMEDIATE")
    other_process.execute(
        "INSERT INTO workers (id, beat, host, slots, queues, agents, started_at) VALUES ('w', 0, '', 1, '[]', '{}', 0)"
    )
    turn = new_turn()
    async with started_and_blocked(database, database.write(accept_turn, turn)) as task:
        assert (await contents(database))["workers"] == [], "a reader waits for nobody"
        other_process.execute("COMMIT")
    assert task.result().run_id == turn.run_id
    rows = await contents(database)
    assert (len(rows["workers"]), len(rows["agent_runs"])) == (1, 1)


@on_sqlite
async def test_a_file_that_stays_locked_is_unavailable(
    database_url: str, other_process: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "SQLITE_BUSY_TIMEOUT_MS", 20)
    database = Database(database_url, pool_size=2)
    begun = []

    def count(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        if statement == "BEGIN IMMEDIATE":
            begun.append(statement)

    sa.event.listen(database._engine.sync_engine, "before_cursor_execute", count)
    other_process.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreUnavailable) as caught:
        await database.write(accept_turn, new_turn())
    assert not isinstance(caught.value, CommitUnknown)
    assert len(begun) == 1, "it has waited once"
    other_process.execute("ROLLBACK")
    await database.write(accept_turn, new_turn())
    assert len((await contents(database))["agent_runs"]) == 1
    await database.close()


async def test_twenty_writers_at_once_lose_nothing(database: Database, rival: Database) -> None:
    """Each reads, then writes what it has read plus one, under the run lock."""
    run = await accepted(database)

    async def add_one(connection: Any) -> None:
        row = await lock_owned(connection, run.id, OWNER)
        assert row is not None
        await connection.execute(sa.update(agent_runs).values(steps=row.steps + 1))

    async with anyio.create_task_group() as group:
        for _ in range(10):
            group.start_soon(database.write, add_one)
            group.start_soon(rival.write, add_one)
    assert (await run_row(database, run.id)).steps == 20


async def test_a_faulty_statement_is_no_outage(database: Database) -> None:
    """It is told as it is, at once, and without what people wrote."""
    tries = 0
    secret = "what the swifts told me"

    async def insert_twice(connection: Any) -> None:
        nonlocal tries
        tries += 1
        run_id = (await accept_turn(connection, new_turn(content=secret))).run_id
        row = {"run_id": run_id, "seq": 1, "invocation_id": "inv", "role": "user", "content": secret, "created_at": 0}
        await connection.execute(sa.insert(agent_messages), row)
        await connection.execute(sa.insert(agent_messages), row)

    with pytest.raises(sa.exc.IntegrityError) as caught:
        await database.write(insert_twice)
    assert tries == 1
    assert secret not in str(caught.value)
    assert (await contents(database))["agent_runs"] == []


@on_sqlite
async def test_a_closed_database_leaves_no_thread(database_url: str) -> None:
    before = set(threading.enumerate())
    database = Database(database_url, pool_size=4)
    await fill_pool(database)
    threads = set(threading.enumerate()) - before
    assert len(threads) == 4
    await database.close()
    for thread in threads:
        thread.join(GUARD_S)
        assert not thread.is_alive()


async def one(connection: Any) -> int:
    return int((await connection.execute(sa.text("SELECT 1"))).scalar_one())


async def backend(connection: Any) -> int:
    return int((await connection.execute(sa.text("SELECT pg_backend_pid()"))).scalar_one())


async def fill_pool(database: Database) -> None:
    """Open every link that the pool may have."""
    size = database._engine.sync_engine.pool.size()  # type: ignore[attr-defined]
    together = asyncio.Barrier(size)

    async def meet(connection: Any) -> None:
        await one(connection)
        await together.wait()

    await asyncio.gather(*(database.read(meet) for _ in range(size)))


def freeze_until_ended(server: psycopg.Connection, pid: int) -> None:
    """Hold this whole process up until the server has given the backend up."""
    while server.execute("SELECT 1 FROM pg_stat_activity WHERE pid = %s", [pid]).fetchone():
        pass


def end_links(server: psycopg.Connection, database: Database) -> None:
    """As a restart of the server does; returns when the backends are gone."""
    name = database._engine.url.database
    while server.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", [name]
    ).fetchall():
        pass
