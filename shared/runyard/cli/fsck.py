"""`runyard fsck`: findings on stdout, one a line; on stderr how far it is, and how it ended."""

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import orjson
import sqlalchemy as sa

from runyard.db.engine import Database
from runyard.db.migrate import require_revision
from runyard.fsck.findings import CouldNotLookError
from runyard.fsck.inspection import Inspection, Scope
from runyard.settings import StateSettings
from runyard.streams.connect import connect

SOUND = 0
BROKEN = 1
PROGRESS_S = 5.0


def run(*, run_id: str | None, since: datetime | None, as_json: bool, grace_s: float) -> int:
    """The exit code.

    Raises:
        StartError: a setting is missing, or the database is not this version's.
        CouldNotLookError: the database or Redis does not answer, or refuses; the run is not there.
    """
    settings = StateSettings.load()
    require_revision(settings.database_url)
    since_ms = 0 if since is None else int(since.replace(tzinfo=UTC).timestamp() * 1000)
    scope = Scope(run_id=run_id, since_ms=since_ms, grace_s=grace_s)
    try:
        return asyncio.run(_inspect(settings, scope, as_json=as_json))
    except sa.exc.DBAPIError as error:
        raise CouldNotLookError(f"the database refuses: {str(error.orig).splitlines()[0]}") from error


async def _inspect(settings: StateSettings, scope: Scope, *, as_json: bool) -> int:
    database, client = Database(settings.database_url, pool_size=1), connect(settings.redis_url)
    count = 0
    try:
        inspection = Inspection(database, client, prefix=settings.prefix)
        async with _progress(inspection):
            async for finding in inspection.findings(scope):
                count += 1
                line = orjson.dumps(finding.to_dict()).decode() if as_json else finding.to_line()
                print(line, flush=True)
    finally:
        await client.aclose()
        await database.close()
    _tell(f"{inspection.progress}: {f'{count} findings' if count else 'nothing is broken'}")
    return BROKEN if count else SOUND


@asynccontextmanager
async def _progress(inspection: Inspection) -> AsyncIterator[None]:
    """Tells every 5 s how much was looked at."""

    async def tell_forever() -> None:
        while True:
            await asyncio.sleep(PROGRESS_S)
            _tell(inspection.progress)

    telling = asyncio.create_task(tell_forever())
    try:
        yield
    finally:
        telling.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await telling


def _tell(line: str) -> None:
    print(f"fsck: {line}", file=sys.stderr, flush=True)
