"""The schema: `runyard migrate` and `runyard dev` upgrade it, gateways and workers wait for it.

An upgrade runs all its migrations in one transaction under a lock, on both databases. If many processes start together,
one migrates and the others find the work done; one that is killed halfway leaves nothing behind.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import sqlalchemy as sa
import structlog
from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory

from runyard.db.engine import sync_engine
from runyard.db.postgres import BoundedLink
from runyard.errors import StartError

LOCK_KEY = 0x72756E79617264  # "runyard": pg_advisory_xact_lock takes any 64-bit number
LOCK_WAIT_MS = 60_000
"""How long another process that migrates is waited for."""

TABLE_WAIT_MS = 5_000
"""How long a table is waited for that somebody reads, as a backup does: all who come after wait as well."""

REVISION_WAIT_S = 60.0
POLL_S = 0.5

log = structlog.get_logger()


def upgrade(database_url: str) -> str | None:
    """Bring the schema to this version's revision, or leave it at a newer one; returns the revision that it then has.

    Waits up to 60 s for another process that is migrating, then for as long as the statements take.

    Raises:
        StartError: the database cannot be reached or changed, or a lock was not free in time.
    """
    engine = sync_engine(database_url, statement_timeout_ms=LOCK_WAIT_MS)
    try:
        if engine.dialect.name == "sqlite":
            Path(engine.url.database or "").parent.mkdir(parents=True, exist_ok=True)
        with engine.begin() as connection:
            if connection.dialect.name == "postgresql":
                _take_turn(connection)
            config = _config()
            config.attributes["connection"] = connection
            if not _is_newer(connection, ScriptDirectory.from_config(config)):
                command.upgrade(config, "head")
            return _revision(connection)
    except (sa.exc.DBAPIError, OSError) as error:
        raise StartError(f"the database cannot be migrated: {_one_line(error)} (RUNYARD_DATABASE_URL)") from error
    finally:
        engine.dispose()


def _take_turn(connection: sa.Connection) -> None:
    """Once the lock is there no statement is given up for taking long: the next attempt would begin anew."""
    connection.execute(sa.select(sa.func.pg_advisory_xact_lock(LOCK_KEY)))
    connection.exec_driver_sql(f"SET LOCAL lock_timeout = {TABLE_WAIT_MS}")
    connection.exec_driver_sql("SET LOCAL statement_timeout = 0")
    link = connection.connection.driver_connection
    assert isinstance(link, BoundedLink)
    link.answer_s = None


def require_revision(database_url: str) -> None:
    """Return if the schema is at this version's revision or at a newer one. It blocks.

    Raises:
        StartError: it is not; the message names the command that migrates.
    """
    engine = sync_engine(database_url)
    script = ScriptDirectory.from_config(_config())
    try:
        with engine.connect() as connection:
            if _revision(connection) != script.get_current_head() and not _is_newer(connection, script):
                raise StartError("the database has not been migrated: run `runyard migrate`")
    except sa.exc.DBAPIError as error:
        raise StartError(f"the database cannot be reached: {_one_line(error)} (RUNYARD_DATABASE_URL)") from error
    finally:
        engine.dispose()


async def wait_for_revision(
    database_url: str,
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> None:
    """Return once the schema is at this version's revision or at a newer one.

    Raises:
        StartError: it was not within a minute.
    """
    deadline = clock() + REVISION_WAIT_S
    logged = False
    while True:
        try:
            return await asyncio.to_thread(require_revision, database_url)
        except StartError as error:
            if clock() >= deadline:
                raise
            if not logged:
                log.info("waiting for the schema", reason=str(error), wait_s=REVISION_WAIT_S)
                logged = True
        await sleep(POLL_S)


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", "runyard.db:migrations")
    config.set_main_option("path_separator", "os")
    return config


def _revision(connection: sa.Connection) -> str | None:
    return MigrationContext.configure(connection).get_current_revision()


def _is_newer(connection: sa.Connection, script: ScriptDirectory) -> bool:
    """Whether a newer version made the schema: this one does not know its revision, but can use it."""
    revision = _revision(connection)
    return revision is not None and revision not in {known.revision for known in script.walk_revisions()}


def _one_line(error: sa.exc.DBAPIError | OSError) -> str:
    return str(error.orig if isinstance(error, sa.exc.DBAPIError) else error).splitlines()[0]
