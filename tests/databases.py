"""Databases for tests, on a Postgres server that must be running."""

import contextlib
import functools
import os
import secrets
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator
from typing import ClassVar

import psycopg
import pytest
import sqlalchemy as sa
from psycopg import sql
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from runyard.db.engine import Database, sync_engine
from runyard.db.tables import metadata

SQLITE = pytest.param("sqlite", id="sqlite")
POSTGRES = pytest.param("postgres", id="postgres", marks=pytest.mark.postgres)
on_sqlite = pytest.mark.parametrize("database_url", [SQLITE], indirect=True)
on_postgres = pytest.mark.parametrize("database_url", [POSTGRES], indirect=True)
"""For a test of what only one of the two can do."""

URL_VARIABLE = "RUNYARD_TEST_POSTGRES_URL"
URL_DEFAULT = "postgresql://postgres@127.0.0.1:5432"


class LastingDatabase(Database):
    """A `Database` that leaves to the next one of its URL what its engine has compiled, and no link.

    To compile the statements anew takes longer than most tests take otherwise.
    """

    _closed: ClassVar[defaultdict[tuple[str, int], list[AsyncEngine]]] = defaultdict(list)

    def _create(self, url: str, pool_size: int) -> AsyncEngine:
        self._left = self._closed[url, pool_size]
        return self._left.pop() if self._left else super()._create(url, pool_size)

    async def close(self) -> None:
        await super().close()
        self._left.append(self._engine)


@contextlib.asynccontextmanager
async def transaction(database: Database) -> AsyncIterator[AsyncConnection]:
    """A transaction of the test's own on one of the database's links, to interleave it with others by hand."""
    async with database._engine.connect() as connection, connection.begin():
        yield connection


@contextlib.contextmanager
def blocking_engine(url: str) -> Iterator[sa.Engine]:
    """A `sync_engine` that keeps what it has compiled for the next who asks, and no link."""
    engine = _blocking_engine(url)
    yield engine
    engine.dispose()


_blocking_engine = functools.cache(sync_engine)


@contextlib.contextmanager
def postgres_database() -> Iterator[str]:
    """A new database, as `RUNYARD_DATABASE_URL` names it.

    Its commits do not wait for the disk: no test kills this server, so that nobody can tell.
    """
    name = f"runyard_test_{secrets.token_hex(6)}"
    with postgres_server() as server:
        server.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        server.execute(sql.SQL("ALTER DATABASE {} SET synchronous_commit = off").format(sql.Identifier(name)))
        try:
            yield _server_url().set(database=name).render_as_string(hide_password=False)
        finally:
            server.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


def empty_postgres(database_url: str) -> None:
    """Delete every row; links that an earlier test left open are ended, so that none holds a lock."""
    with psycopg.connect(database_url, autocommit=True) as link:
        link.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
        for table in reversed(metadata.sorted_tables):
            link.execute(sql.SQL("DELETE FROM {}").format(sql.Identifier(table.name)))


@contextlib.contextmanager
def postgres_server() -> Iterator[psycopg.Connection]:
    """A superuser's link to the server, outside of every database under test; without a server the test fails."""
    url = _server_url()
    try:
        link = psycopg.connect(url.render_as_string(hide_password=False), autocommit=True, connect_timeout=5)
    except psycopg.OperationalError as error:
        reason = str(error).splitlines()[0]
    else:
        with link:
            yield link
        return
    pytest.fail(
        f"no Postgres at {url.render_as_string()}: start it, or name another server in {URL_VARIABLE} ({reason})",
        pytrace=False,
    )


def _server_url() -> sa.URL:
    return sa.make_url(os.environ.get(URL_VARIABLE, URL_DEFAULT))
