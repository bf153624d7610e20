"""A worker's commits: one that has failed is tried again; one of unknown outcome is reported."""

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from runyard.backoff import Backoff
from runyard.db.engine import Database, P, T, Work
from runyard.errors import CommitUnknown, StoreUnavailable

BACKOFF_FIRST_S, BACKOFF_LONGEST_S = 0.2, 5.0

log = structlog.get_logger()


async def commit(database: Database, work: Work[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Try a transaction again until it is committed, for as long as the database is away.

    So no paid work is lost: a model's turn waits here until it can be stored. If the run changes hands meanwhile, the
    fence refuses it.

    Raises:
        CommitUnknown: memory no longer says what is stored: load the run again.
        GenerationLost: the run belongs to another worker.
    """
    return await _until_committed(lambda: database.write(work, *args, **kwargs))


async def commit_at_once(database: Database, work: Work[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """The same for a transaction of one statement (`Database.write_at_once`)."""
    return await _until_committed(lambda: database.write_at_once(work, *args, **kwargs))


async def commit_repeatable(database: Database, work: Work[P, None], *args: P.args, **kwargs: P.kwargs) -> None:
    """The same for one that changes nothing the second time: it is repeated until its outcome is known.

    So a tool that is running can go on, while loading the run again would drop it.

    Raises:
        GenerationLost: the run belongs to another worker.
    """
    backoff = database_backoff()
    while True:
        try:
            return await commit_at_once(database, work, *args, **kwargs)
        except CommitUnknown as error:
            log.warning("commit in doubt is repeated", error=str(error))
        await asyncio.sleep(backoff.next_s())


async def _until_committed(write: Callable[[], Awaitable[T]]) -> T:
    backoff = database_backoff()
    while True:
        try:
            return await write()
        except CommitUnknown:
            raise
        except StoreUnavailable as error:
            log.warning("database is away", error=str(error))
        await asyncio.sleep(backoff.next_s())


def database_backoff() -> Backoff:
    """The waits between two tries of what is tried until the database is back."""
    return Backoff(first_s=BACKOFF_FIRST_S, longest_s=BACKOFF_LONGEST_S)
