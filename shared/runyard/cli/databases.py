"""Running a command's work on the database, over one connection that is closed afterwards."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from runyard.db.engine import Database
from runyard.db.migrate import require_revision
from runyard.errors import StartError, StoreUnavailable

T = TypeVar("T")


def in_database(url: str, work: Callable[[Database], Awaitable[T]]) -> T:
    """Run `work` on an event loop of its own and return its result; it blocks.

    Raises:
        StartError: the database does not answer, or is not this version's.
    """
    require_revision(url)

    async def run() -> T:
        database = Database(url, pool_size=1)
        try:
            return await work(database)
        finally:
            await database.close()

    try:
        return asyncio.run(run())
    except StoreUnavailable as error:
        raise StartError(f"{error.message} (RUNYARD_DATABASE_URL)") from error
