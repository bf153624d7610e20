"""One database behind one interface: Postgres through psycopg 3, SQLite (WAL) through aiosqlite.

A transaction is a function of a connection. `Database.write` runs it and commits. It knows which failures it may
repeat: if the link was dead before the commit was sent, nothing has changed, and the function runs once more on a new
link. If the commit itself fails, its outcome is unknown, which is raised as `CommitUnknown`. A transaction of a single
statement needs no BEGIN and no COMMIT: `Database.write_at_once`.
"""

import asyncio
import contextlib
import sqlite3
import time
from collections.abc import Awaitable, Callable
from typing import Any, Concatenate, ParamSpec, TypeVar

import orjson
import psycopg
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from runyard.db.postgres import AsyncBoundedLink, bound_waits, is_refusal, link_options, link_url, watch_links
from runyard.errors import CommitUnknown, StoreUnavailable

P = ParamSpec("P")
T = TypeVar("T")
Work = Callable[Concatenate[AsyncConnection, P], Awaitable[T]]

SQLITE_BUSY_TIMEOUT_MS = 10_000
"""How long a SQLite writer waits for another process's transaction before it fails as unavailable."""

WAL_RETRY_S = 0.02
POOL_WAIT_S = 10

SQLITE_AWAY = {
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_CANTOPEN,
}
"""Primary result codes that blame the file and not the statement (https://www.sqlite.org/rescode.html)."""


def _dumps(value: Any) -> str:
    return orjson.dumps(value).decode()


_ENGINE_OPTIONS: dict[str, Any] = {
    "json_serializer": _dumps,
    "json_deserializer": orjson.loads,
    "hide_parameters": True,  # an error's text is logged, and its statement's parameters are what people wrote
}


def _is_sqlite(url: str) -> bool:
    return url.startswith("sqlite:")


def sync_engine(url: str, *, statement_timeout_ms: int | None = None) -> sa.Engine:
    """A blocking engine of one link: for migrations and for the beat's own thread.

    On SQLite every transaction begins IMMEDIATE.
    """
    if _is_sqlite(url):
        timeout_ms = statement_timeout_ms or SQLITE_BUSY_TIMEOUT_MS
        engine = sa.create_engine(
            url, pool_size=1, max_overflow=0, connect_args={"factory": _SqliteConnection}, **_ENGINE_OPTIONS
        )
        _configure_sqlite(engine, timeout_ms)
        return engine
    engine = sa.create_engine(
        link_url(url),
        pool_size=1,
        max_overflow=0,
        connect_args=link_options(url, statement_timeout_ms),
        **_ENGINE_OPTIONS,
    )
    bound_waits(engine, statement_timeout_ms)
    watch_links(engine)
    return engine


class _SqliteConnection(sqlite3.Connection):
    """A connection whose `close` ends its transaction.

    SQLite itself keeps a closed connection, with its lock, until all its statements are finished, and the traceback of
    a cancelled task keeps such a statement alive until the next garbage collection.
    https://www.sqlite.org/c3ref/close.html
    """

    def close(self) -> None:
        with contextlib.suppress(sqlite3.ProgrammingError):  # it is closed already
            self.rollback()
        super().close()


def _configure_sqlite(engine: sa.Engine, busy_timeout_ms: int) -> None:
    @sa.event.listens_for(engine, "connect")
    def _connect(connection: Any, _record: object) -> None:
        # The driver's own transaction control begins too late for BEGIN IMMEDIATE; ours replaces it.
        connection.isolation_level = None
        cursor = connection.cursor()
        cursor.execute(f"PRAGMA busy_timeout = {busy_timeout_ms}")
        _use_wal(cursor, busy_timeout_ms)
        cursor.execute("PRAGMA synchronous = NORMAL")  # in WAL safe against a crash of the process
        cursor.execute("PRAGMA foreign_keys = ON")
        cursor.close()

    @sa.event.listens_for(engine, "begin")
    def _begin(connection: sa.Connection) -> None:
        read_only = connection.get_execution_options().get("runyard_read", False)
        connection.exec_driver_sql("BEGIN" if read_only else "BEGIN IMMEDIATE")


def _use_wal(cursor: Any, busy_timeout_ms: int) -> None:
    """Switch to WAL, waiting for writers. SQLite refuses the switch at once while another process writes, so of many
    processes that open a new file together some would fail. A database that is in WAL already does not change.
    """
    deadline = time.monotonic() + busy_timeout_ms / 1000
    while True:
        try:
            cursor.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            if _sqlite_code(error) != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
        else:
            return
        time.sleep(WAL_RETRY_S)  # SQLite tells nobody when the other's write is over; this is before anybody is served


class Database:
    """The process's pool of connections. Create it inside the running loop and close it.

    `on_commit` is called after each commit of `write` and must not raise.
    """

    def __init__(self, url: str, *, pool_size: int, on_commit: Callable[[], None] = lambda: None) -> None:
        self._on_commit = on_commit
        self.is_sqlite = _is_sqlite(url)
        # SQLite has one writer: waiting for it here costs nothing, inside SQLite it is a poll with naps.
        self._writer: contextlib.AbstractAsyncContextManager[object] = (
            asyncio.Lock() if self.is_sqlite else contextlib.nullcontext()
        )
        self._engine = self._create(url, pool_size)

    def _create(self, url: str, pool_size: int) -> AsyncEngine:
        if self.is_sqlite:
            engine = create_async_engine(
                url.replace("sqlite:", "sqlite+aiosqlite:", 1),
                pool_size=min(pool_size, 8),
                max_overflow=0,
                pool_timeout=POOL_WAIT_S,
                pool_use_lifo=True,
                connect_args={"factory": _SqliteConnection},
                **_ENGINE_OPTIONS,
            )
            _configure_sqlite(engine.sync_engine, SQLITE_BUSY_TIMEOUT_MS)
            return engine
        engine = create_async_engine(
            link_url(url),
            pool_size=pool_size,
            max_overflow=0,
            pool_timeout=POOL_WAIT_S,
            pool_use_lifo=True,  # the link used last has its statements prepared, and its server's caches warm
            connect_args={"async_creator_fn": AsyncBoundedLink.connect, **link_options(url, None)},
            **_ENGINE_OPTIONS,
        )
        watch_links(engine.sync_engine)
        return engine

    async def read(self, work: Work[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a function that only reads; no lock is taken, each statement sees what is committed.

        Raises:
            StoreUnavailable: the database did not answer twice in a row.
        """
        options: dict[str, Any] = {"runyard_read": True} if self.is_sqlite else {"isolation_level": "AUTOCOMMIT"}
        return await self._read(options, work, *args, **kwargs)

    async def snapshot(self, work: Work[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a function that only reads; no lock is taken, all of its statements see the same moment.

        Raises:
            StoreUnavailable: the database did not answer twice in a row.
        """
        options: dict[str, Any] = (
            {"runyard_read": True}  # in WAL the first statement fixes what a transaction sees
            if self.is_sqlite
            else {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True}
        )
        return await self._read(options, work, *args, **kwargs)

    async def _read(self, options: dict[str, Any], work: Work[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        async def attempt() -> T:
            async with self._engine.connect() as connection:
                return await work(await connection.execution_options(**options), *args, **kwargs)

        return await _once_more(attempt)

    async def write(self, work: Work[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run one transaction and commit it.

        `work` may run twice, so its only effects are its statements.

        Raises:
            StoreUnavailable: nothing was changed.
            CommitUnknown: the commit was sent and no answer came; read the rows again.
        """

        async def attempt() -> T:
            async with self._writer, self._engine.connect() as connection:
                transaction = await connection.begin()
                try:
                    result = await work(connection, *args, **kwargs)
                except BaseException:
                    await _quiet_rollback(transaction.rollback)
                    raise
                try:
                    await transaction.commit()
                except (sa.exc.DBAPIError, psycopg.Error, sqlite3.Error, OSError) as error:
                    raise CommitUnknown("the database did not answer a commit: its outcome is unknown") from error
                self._on_commit()
                return result

        return await _once_more(attempt)

    async def write_at_once(self, work: Work[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a transaction of one statement: on Postgres it commits itself, and takes one round trip instead of three.

        Raises:
            StoreUnavailable: nothing was changed.
            CommitUnknown: the statement was sent and no answer came; read the rows again.
        """
        if self.is_sqlite:  # it has no round trips to save, and what is one statement on Postgres may be several here
            return await self.write(work, *args, **kwargs)

        async def attempt() -> T:
            async with self._engine.connect() as connection:
                await connection.execution_options(isolation_level="AUTOCOMMIT")
                try:
                    result = await work(connection, *args, **kwargs)
                except sa.exc.DBAPIError as error:
                    if _is_away(error) and not is_refusal(error.orig):
                        raise CommitUnknown("the database did not answer: the outcome is unknown") from error
                    raise
                self._on_commit()
                return result

        return await _once_more(attempt)

    @property
    def links(self) -> int:
        """How many connections the pool may open."""
        return self._pool.size()

    def links_in_use(self) -> int:
        """May be called from any thread."""
        return self._pool.checkedout()

    @property
    def _pool(self) -> sa.QueuePool:
        pool = self._engine.pool
        assert isinstance(pool, sa.QueuePool)
        return pool

    async def close(self) -> None:
        """Close every connection. End whatever uses one first: a connection in use is not closed, now or later."""
        await self._engine.dispose()


async def _quiet_rollback(rollback: Callable[[], Awaitable[None]]) -> None:
    # The link that broke the transaction cannot roll it back; the server does. The first error is the one to tell.
    with contextlib.suppress(sa.exc.DBAPIError):
        await rollback()


async def _once_more(attempt: Callable[[], Awaitable[T]]) -> T:
    for last_try in (False, True):
        try:
            return await attempt()
        except sa.exc.TimeoutError as error:
            raise StoreUnavailable("no database connection became free in time") from error
        except sa.exc.DBAPIError as error:
            if not _is_away(error):
                raise
            if last_try or isinstance(error.orig, sqlite3.Error):  # a file has no other link, and waited already
                raise StoreUnavailable("the database does not answer or cannot be written") from error
    raise AssertionError("unreachable")


def _is_away(error: sa.exc.DBAPIError) -> bool:
    """Whether the database is at fault and not the statement, which then has changed nothing."""
    if isinstance(error.orig, sqlite3.Error):
        return _sqlite_code(error.orig) in SQLITE_AWAY
    return error.connection_invalidated or isinstance(error, sa.exc.OperationalError | sa.exc.InterfaceError)


def _sqlite_code(error: sqlite3.Error) -> int:
    """Its primary result code; 0 for an error that Python's driver raised by itself."""
    code: int = getattr(error, "sqlite_errorcode", 0)
    return code & 0xFF
