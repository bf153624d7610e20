"""The schema: one process migrates while the rest wait, and what it makes is what the code expects."""

import contextlib
import json
import multiprocessing
import re
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from tests.contract.store import migrating
from tests.databases import POSTGRES, SQLITE
from tests.integration.fork_server import fork_context

from runyard.db import migrate
from runyard.db.engine import sync_engine
from runyard.db.migrate import require_revision, upgrade, wait_for_revision
from runyard.db.tables import metadata
from runyard.errors import StartError

SCRIPTS = ScriptDirectory.from_config(migrate._config())
HEAD = SCRIPTS.get_current_head()
ALL = f"done {len(list(SCRIPTS.walk_revisions()))}"
UPGRADES = Path(__file__).parents[3] / "docs/upgrade.md"
BEFORE = "0006"
"""What the version before this one migrates to (`tests/previous`)."""


class Process:
    """One that runs `migrating.main`."""

    def __init__(self, database_url: str, until: str) -> None:
        self._line, its = multiprocessing.Pipe()
        self._process = fork_context().Process(target=migrating.main, args=(database_url, until, its))
        self._process.start()
        its.close()

    def says(self, *lines: str) -> None:
        for line in lines:
            assert self._line.recv() == line

    def last_words(self) -> str:
        word: str = self._line.recv()
        self._process.join()
        assert self._process.exitcode == 0
        return word

    def go(self) -> None:
        self._line.send("go")

    def kill(self) -> None:
        self._process.kill()
        self._process.join()
        self._line.close()


@contextlib.contextmanager
def processes(database_url: str, number: int, *, until: str = "never") -> Iterator[list[Process]]:
    """Processes that are ready to migrate."""
    started = [Process(database_url, until) for _ in range(number)]
    try:
        for process in started:
            process.says("ready")
        yield started
    finally:
        for process in started:
            process.kill()


@contextlib.contextmanager
def connection_to(database_url: str) -> Iterator[sa.Connection]:
    engine = sync_engine(database_url)
    try:
        with engine.connect() as connection:
            yield connection
    finally:
        engine.dispose()


@pytest.fixture
def previous_url(empty_database_url: str) -> str:
    """Of a database that the version before has migrated."""
    config = migrate._config()
    with connection_to(empty_database_url) as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, BEFORE)
        connection.commit()
    return empty_database_url


@pytest.fixture
def migrated_url(empty_database_url: str) -> str:
    upgrade(empty_database_url)
    return empty_database_url


def test_of_five_processes_that_start_together_one_migrates(empty_database_url: str) -> None:
    with processes(empty_database_url, 5) as five:
        for process in five:
            process.go()
        for process in five:
            process.says("waiting")
        assert sorted(process.last_words() for process in five) == ["done 0"] * 4 + [ALL]
    assert revision(empty_database_url) == HEAD


@pytest.mark.parametrize("empty_database_url", [SQLITE], indirect=True)
def test_a_new_file_that_another_process_writes_is_waited_for(
    empty_database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite itself does not wait before it changes the file to WAL."""
    with contextlib.closing(sqlite3.connect(sa.make_url(empty_database_url).database, isolation_level=None)) as other:
        other.execute("CREATE TABLE something (x)")
        other.execute("BEGIN IMMEDIATE")
        monkeypatch.setattr("runyard.db.engine.time.sleep", lambda _: other.execute("COMMIT"))
        with connection_to(empty_database_url) as connection:
            assert connection.exec_driver_sql("PRAGMA journal_mode").scalar_one() == "wal"


def test_others_take_over_from_one_that_is_killed(empty_database_url: str) -> None:
    with (
        processes(empty_database_url, 1, until="CREATE TABLE agent_runs") as [first],
        processes(empty_database_url, 2) as others,
    ):
        first.go()
        first.says("waiting", "half way")
        for process in others:
            process.go()
            process.says("waiting")
        first.kill()
        assert sorted(process.last_words() for process in others) == ["done 0", ALL]
    assert revision(empty_database_url) == HEAD


def test_a_migration_that_is_killed_leaves_nothing(empty_database_url: str) -> None:
    with processes(empty_database_url, 1, until="CREATE TABLE agent_runs") as [process]:
        process.go()
        process.says("waiting", "half way")
        process.kill()
    with connection_to(empty_database_url) as connection:
        assert sa.inspect(connection).get_table_names() == []
    upgrade(empty_database_url)
    assert revision(empty_database_url) == HEAD


def test_migrating_again_changes_nothing(migrated_url: str) -> None:
    with connection_to(migrated_url) as connection:
        before = shape(connection)
    assert upgrade(migrated_url) == HEAD
    with connection_to(migrated_url) as connection:
        assert shape(connection) == before


def test_the_migrations_make_what_the_code_declares(migrated_url: str) -> None:
    """alembic compares tables and columns, `shape` also checks and the conditions of indexes."""
    with connection_to(migrated_url) as connection:
        assert compare_metadata(MigrationContext.configure(connection), metadata) == []
        migrated = shape(connection)
        metadata.drop_all(connection)
        metadata.create_all(connection)
        assert migrated == shape(connection)


@pytest.mark.parametrize("empty_database_url", [POSTGRES], indirect=True)
def test_what_was_made_beforehand_is_left(previous_url: str) -> None:
    """Those that the page on upgrades names, by its own words, on what the version before left behind."""
    [block] = re.findall(r"^```sql\n(.*?)^```", UPGRADES.read_text(), re.MULTILINE | re.DOTALL)
    statements = [statement for statement in block.split(";") if statement.strip()]
    assert len(statements) >= 2
    with connection_to(previous_url) as connection:
        before = index_names(connection)
        for statement in statements:
            connection.execute(sa.text(statement.replace("CONCURRENTLY ", "")))
        connection.commit()
    upgrade(previous_url)
    with connection_to(previous_url) as connection:
        assert index_names(connection) - before == set(re.findall(r"CONCURRENTLY (\w+)", block)), (
            "the page has them all"
        )
        migrated = shape(connection)
        metadata.drop_all(connection)
        metadata.create_all(connection)
        assert migrated == shape(connection)


def index_names(connection: sa.Connection) -> set[str]:
    inspector = sa.inspect(connection)
    return {str(index["name"]) for table in inspector.get_table_names() for index in inspector.get_indexes(table)}


def test_the_migrations_can_be_taken_back(migrated_url: str) -> None:
    config = migrate._config()
    with connection_to(migrated_url) as connection:
        config.attributes["connection"] = connection
        command.downgrade(config, "base")
        connection.commit()
        assert shape(connection) == {}
    upgrade(migrated_url)
    assert revision(migrated_url) == HEAD


def test_a_schema_of_a_newer_version_is_left_alone(migrated_url: str) -> None:
    """While two versions run side by side, the newer one migrates and the older one goes on with what it finds."""
    set_revision(migrated_url, "9999_from_the_future")
    assert upgrade(migrated_url) == "9999_from_the_future"
    require_revision(migrated_url)
    assert revision(migrated_url) == "9999_from_the_future"


class Clock:
    """Time passes only by sleeping."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s

    async def sleep(self, duration_s: float) -> None:
        self.now_s += duration_s


@pytest.mark.anyio
async def test_an_unmigrated_database_is_waited_for_then_told(empty_database_url: str) -> None:
    clock = Clock()
    with pytest.raises(StartError, match=r"^the database has not been migrated: run `runyard migrate`$"):
        await wait_for_revision(empty_database_url, clock=clock, sleep=clock.sleep)
    assert clock.now_s == migrate.REVISION_WAIT_S


@pytest.mark.anyio
async def test_a_database_that_is_migrated_meanwhile_is_found(empty_database_url: str) -> None:
    clock = Clock()

    async def sleep(duration_s: float) -> None:
        await clock.sleep(duration_s)
        if clock.now_s == 3 * migrate.POLL_S:
            upgrade(empty_database_url)

    await wait_for_revision(empty_database_url, clock=clock, sleep=sleep)
    assert clock.now_s == 3 * migrate.POLL_S


UNREACHABLE = ["postgresql://postgres:hunter2@127.0.0.1:1/runyard", "sqlite:////proc/nowhere/runyard.db"]


@pytest.mark.parametrize("url", UNREACHABLE, ids=["postgres", "sqlite"])
def test_a_database_out_of_reach_is_told_in_one_line(url: str) -> None:
    with pytest.raises(StartError) as waiting:
        require_revision(url)
    with pytest.raises(StartError) as migrating:
        upgrade(url)
    for said in (str(waiting.value), str(migrating.value)):
        assert "\n" not in said
        assert "hunter2" not in said
        assert "RUNYARD_DATABASE_URL" in said


@pytest.mark.parametrize("empty_database_url", [POSTGRES], indirect=True)
def test_a_user_who_may_not_migrate_is_told_so_in_one_line(empty_database_url: str) -> None:
    with connection_to(empty_database_url) as connection:
        connection.execute(sa.text("REVOKE CREATE ON SCHEMA public FROM PUBLIC"))
        connection.execute(sa.text(f"ALTER DATABASE {connection.engine.url.database} SET role = pg_monitor"))
        connection.commit()
    with pytest.raises(StartError, match=r"^the database cannot be migrated: permission denied [^\n]+$"):
        upgrade(empty_database_url)


@pytest.mark.parametrize("empty_database_url", [POSTGRES], indirect=True)
def test_a_table_that_somebody_reads_is_not_waited_for_while_all_others_wait(
    previous_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(migrate, "TABLE_WAIT_MS", 20)
    with connection_to(previous_url) as backup:
        backup.execute(sa.text("SELECT count(*) FROM agent_runs"))
        with pytest.raises(StartError, match=r"^the database cannot be migrated: [^\n]+ due to lock timeout [^\n]+$"):
            upgrade(previous_url)
    assert revision(previous_url) == BEFORE
    assert upgrade(previous_url) == HEAD


@pytest.mark.parametrize("empty_database_url", [POSTGRES], indirect=True)
def test_a_statement_may_take_longer_than_the_lock_is_waited_for(
    previous_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(migrate, "LOCK_WAIT_MS", 20)
    with connection_to(previous_url) as connection:
        connection.execute(sa.text(SLOW_DROP))
        connection.commit()
    assert upgrade(previous_url) == HEAD


SLOW_DROP = """
CREATE FUNCTION take_long() RETURNS event_trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(1.2); END';
CREATE EVENT TRIGGER large_table ON ddl_command_start WHEN TAG IN ('DROP INDEX') EXECUTE FUNCTION take_long();
"""
"""Longer than `LOCK_WAIT_MS` there, and than the second for which a link waits longer."""


def test_a_lock_that_does_not_come_free_is_told(empty_database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(migrate, "LOCK_WAIT_MS", 20)
    with processes(empty_database_url, 1, until="CREATE TABLE agent_runs") as [holder]:
        holder.go()
        holder.says("waiting", "half way")
        with pytest.raises(StartError, match=r"^the database cannot be migrated: [^\n]+$"):
            upgrade(empty_database_url)


def revision(database_url: str) -> str | None:
    with connection_to(database_url) as connection:
        return MigrationContext.configure(connection).get_current_revision()


def set_revision(database_url: str, name: str) -> None:
    with connection_to(database_url) as connection:
        connection.execute(sa.text("UPDATE alembic_version SET version_num = :name"), {"name": name})
        connection.commit()


def shape(connection: sa.Connection) -> dict[str, Any]:
    """All of the schema that the database can tell but the order of columns, on which nothing depends; checks and
    conditions of indexes included.
    """
    inspector = sa.inspect(connection)
    parts = ("pk_constraint", "foreign_keys", "indexes", "unique_constraints", "check_constraints")
    return {
        table: {
            "columns": sorted(json.dumps(column, default=str) for column in inspector.get_columns(table)),
            **{part: json.dumps(getattr(inspector, f"get_{part}")(table), default=str) for part in parts},
        }
        for table in inspector.get_table_names()
        if table != "alembic_version"
    }
