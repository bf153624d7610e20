"""The stacks as fixtures. Each starts once a session, when a test first asks for it; a failed test shows its logs.

A plugin of all tests (`tests/conftest.py`), so that contract and integration tests share the stacks. What these are
made of is imported with the first of them: unit tests wait for no database driver.
"""

import secrets
from collections.abc import AsyncIterator, Generator, Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.integration.stack import Stack

SQLITE = pytest.param("sqlite", id="sqlite")
POSTGRES = pytest.param("postgres", id="postgres", marks=pytest.mark.postgres)
on_sqlite = pytest.mark.parametrize("stack", [SQLITE], indirect=True)
on_postgres = pytest.mark.parametrize("stack", [POSTGRES], indirect=True)
"""For what only one of them can show, and for what both would show alike."""

LOG_LINES = 60


@pytest.fixture(scope="session")
async def sqlite_stack(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator["Stack"]:
    from tests.integration.stack import sqlite_and_valkey, starting_stack

    folder = tmp_path_factory.mktemp("sqlite-stack")
    with sqlite_and_valkey(folder) as backing:
        async with starting_stack(backing, folder) as stack:
            yield stack


@pytest.fixture(scope="session")
async def postgres_stack(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator["Stack"]:
    from tests.integration.stack import postgres_and_redis, starting_stack

    folder = tmp_path_factory.mktemp("postgres-stack")
    with postgres_and_redis() as backing:
        async with starting_stack(backing, folder) as stack:
            yield stack


@pytest.fixture(params=[SQLITE, POSTGRES])
def stack(request: pytest.FixtureRequest) -> Iterator["Stack"]:
    """SQLite with a Valkey of its own, and Postgres with Redis. What one test scripted is forgotten after it."""
    found: Stack = request.getfixturevalue(f"{request.param}_stack")
    with found.used_by_one_test():
        yield found


@pytest.fixture
def unique() -> str:
    """A word that no other test says: for gates, for what a conversation is found by."""
    return f"t{secrets.token_hex(6)}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    used: Stack | None = getattr(item, "funcargs", {}).get("stack")
    if report.failed and used is not None:
        for process in used.processes:
            lines = process.log.read_text(errors="replace").splitlines()[-LOG_LINES:]
            report.sections.append((f"log of {process.log.stem}", "\n".join(lines)))
    return report
