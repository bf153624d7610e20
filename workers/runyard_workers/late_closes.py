"""Closes streams of settled invocations that are still open, for example because a worker died after its commit."""

import asyncio

import structlog

from runyard.db import closes, turns
from runyard.db.engine import Database
from runyard.db.records import Invocation
from runyard.errors import StoreUnavailable
from runyard.lifecycle.endings import stored_ending
from runyard.metrics import LATE_CLOSES
from runyard_workers.closer import Closer

SWEEP_S = 5.0

log = structlog.get_logger()


async def sweep_forever(database: Database, closer: Closer) -> None:
    """Until cancelled. Every worker sweeps; a stream that two of them find is closed once."""
    while True:
        await asyncio.sleep(SWEEP_S)
        try:
            for invocation in await database.read(closes.late_closes):
                if not closer.has(invocation.id):
                    await _close(database, closer, invocation)
        except StoreUnavailable as error:
            log.warning("late closes not swept", error=str(error))


async def _close(database: Database, closer: Closer, invocation: Invocation) -> None:
    rows = await database.read(turns.load_messages, invocation.run_id)
    names = {"invocation_id": invocation.id, "stream_id": invocation.stream_id}
    try:
        closer.close(stored_ending(invocation, rows))
    except Exception:
        # One that cannot be made sense of must not end every worker that comes by.
        log.exception("stream cannot be closed", **names)
    else:
        LATE_CLOSES.inc()
        log.info("stream closed late", **names)
