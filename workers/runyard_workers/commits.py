"""A worker's commits: what certainly did not happen is tried again, what may have happened is told."""

import asyncio

import structlog

from runyard.backoff import Backoff
from runyard.db.engine import Database, P, T, Work
from runyard.errors import CommitUnknown, StoreUnavailable

BACKOFF_FIRST_S, BACKOFF_LONGEST_S = 0.2, 5.0

log = structlog.get_logger()


async def commit(database: Database, work: Work[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run a transaction until it is committed, for as long as the database is away.

    Paid work is not thrown away: a model's turn waits here until it can be stored. Should the run change hands
    meanwhile, the fence refuses it.

    Raises:
        CommitUnknown: memory no longer says what is stored: load the run anew.
        GenerationLost: the run belongs to another worker.
    """
    backoff = database_backoff()
    while True:
        try:
            return await database.write(work, *args, **kwargs)
        except CommitUnknown:
            raise
        except StoreUnavailable as error:
            log.warning("database is away", error=str(error))
        await asyncio.sleep(backoff.next_s())


async def commit_repeatable(database: Database, work: Work[P, None], *args: P.args, **kwargs: P.kwargs) -> None:
    """The same for what changes nothing when it is done a second time: an unknown outcome is made a known one.

    A tool that runs beside it goes on; loading anew would drop it.

    Raises:
        GenerationLost: the run belongs to another worker.
    """
    backoff = database_backoff()
    while True:
        try:
            return await commit(database, work, *args, **kwargs)
        except CommitUnknown as error:
            log.warning("commit in doubt is repeated", error=str(error))
        await asyncio.sleep(backoff.next_s())


def database_backoff() -> Backoff:
    """The waits between two tries of what is tried until the database is back."""
    return Backoff(first_s=BACKOFF_FIRST_S, longest_s=BACKOFF_LONGEST_S)
