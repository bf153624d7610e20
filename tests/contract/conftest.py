from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa
from tests.databases import POSTGRES, SQLITE, postgres_database

from runyard.db.engine import Database
from runyard.db.migrate import upgrade


@pytest.fixture(scope="session")
def postgres_template() -> Iterator[str]:
    """The name of a migrated database; a copy of it is made faster than the migrations run."""
    with postgres_database() as url:
        upgrade(url)
        name = sa.make_url(url).database
        assert name is not None
        yield name


@pytest.fixture(params=[SQLITE, POSTGRES])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A migrated database of the test's own, on SQLite and on Postgres."""
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path}/runyard.db"
        upgrade(url)
        yield url
        return
    with postgres_database(template=request.getfixturevalue("postgres_template")) as url:
        yield url


@pytest.fixture(params=[SQLITE, POSTGRES])
def empty_database_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The same before any migration."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/runyard.db"
        return
    with postgres_database() as url:
        yield url


@pytest.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    opened = Database(database_url, pool_size=4)
    yield opened
    await opened.close()


@pytest.fixture
async def rival(database_url: str) -> AsyncIterator[Database]:
    """The same database as another process sees it: a pool (and on SQLite a writer's lock) of its own."""
    opened = Database(database_url, pool_size=4)
    yield opened
    await opened.close()
