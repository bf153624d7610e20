import secrets
import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import structlog
from tests.contract.execution.worker import Worker, opened
from tests.databases import POSTGRES, SQLITE, LastingDatabase, empty_postgres, postgres_database
from tests.redis_servers import redis_server, sweep

from runyard.db.engine import Database
from runyard.db.migrate import upgrade
from runyard.streams.connect import connect
from runyard_workers import closer, commits


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A migrated file; a copy of it is made faster than the migrations run."""
    file = tmp_path_factory.mktemp("template") / "runyard.db"
    upgrade(f"sqlite:///{file}")
    return file


@pytest.fixture(scope="session")
def shared_postgres_url() -> Iterator[str]:
    """A migrated database that the tests use one after the other: to make one takes longer than most of them."""
    with postgres_database() as url:
        upgrade(url)
        yield url


@pytest.fixture(scope="session")
def sqlite_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tests put files of their own here, one after the other."""
    return tmp_path_factory.mktemp("sqlite") / "runyard.db"


@pytest.fixture(params=[SQLITE, POSTGRES])
def database_url(request: pytest.FixtureRequest) -> str:
    """A migrated database that is empty and the test's alone, on SQLite and on Postgres; the URL is always the same."""
    if request.param == "sqlite":
        file: Path = request.getfixturevalue("sqlite_file")
        for left in file.parent.iterdir():
            left.unlink()  # whoever has it open still writes to what is gone
        shutil.copyfile(request.getfixturevalue("sqlite_template"), file)
        return f"sqlite:///{file}"
    url: str = request.getfixturevalue("shared_postgres_url")
    empty_postgres(url)
    return url


@pytest.fixture(params=[SQLITE, POSTGRES])
def empty_database_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A database of the test's own, before any migration."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/runyard.db"
        return
    with postgres_database() as url:
        yield url


@pytest.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    opened = LastingDatabase(database_url, pool_size=4)
    yield opened
    await opened.close()


@pytest.fixture
async def rival(database_url: str) -> AsyncIterator[Database]:
    """The same database as another process sees it: a pool (and on SQLite a writer's lock) of its own."""
    opened = LastingDatabase(database_url, pool_size=4)
    yield opened
    await opened.close()


@pytest.fixture(scope="session", params=[SQLITE, POSTGRES])
def lasting_database_url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A migrated database for many tests, each of which leaves it empty."""
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path_factory.mktemp('lasting')}/runyard.db"
        upgrade(url)
        yield url
        return
    with postgres_database() as url:
        upgrade(url)
        yield url


@pytest.fixture
def plain_logs() -> Iterator[None]:
    """Tracebacks without the locals of each frame, which take seconds to print."""
    renderer = structlog.dev.ConsoleRenderer(colors=False, exception_formatter=structlog.dev.plain_traceback)
    structlog.configure(processors=[structlog.processors.add_log_level, renderer])
    yield
    structlog.reset_defaults()


@pytest.fixture
async def worker(lasting_database_url: str, monkeypatch: pytest.MonkeyPatch, plain_logs: None) -> AsyncIterator[Worker]:
    """The core of a worker process, with frames in Redis under a prefix of its own."""
    monkeypatch.setattr(commits, "BACKOFF_FIRST_S", 0.001)
    monkeypatch.setattr(closer, "MARK_S", 0.001)
    monkeypatch.setattr(closer, "RETRY_S", 0.01)
    client, prefix = connect(redis_server()), f"test-{secrets.token_hex(6)}"
    async with opened(lasting_database_url, client, prefix) as worker:
        yield worker
    await sweep(client, prefix)
    await client.aclose()
