"""Deletes what is old enough. Every worker does so from time to time; two that do it at once share the work."""

import asyncio
import random
import time
from collections.abc import Mapping
from typing import NamedTuple, Protocol

import structlog
from sqlalchemy.ext.asyncio import AsyncConnection

from runyard.db import retention
from runyard.db.engine import Database
from runyard.db.retention import Forgotten
from runyard.errors import CommitUnknown, StoreUnavailable
from runyard.metrics import FORGOTTEN
from runyard.settings import Settings
from runyard.streams.store import FrameStore

SWEEP_S = 60.0
BREATH_S = 0.1
"""Between two batches, so that others have their turn: on SQLite at the one lock there is."""

DAY_MS = 86_400_000

log = structlog.get_logger()


class Batch(Protocol):
    """One of the transactions of `runyard.db.retention`."""

    async def __call__(self, connection: AsyncConnection, *, age_ms: int) -> Forgotten: ...


class Duty(NamedTuple):
    batch: Batch
    age_ms: int


def duties_of(settings: Settings) -> dict[str, Duty]:
    """By the kind of rows that they delete, as in the metric's label."""
    duties = {
        "idempotency_keys": Duty(retention.forget_keys, retention.KEYS_AGE_MS),
        "deletions": Duty(retention.forget_deletions, retention.DELETIONS_AGE_MS),
        "manifests": Duty(retention.forget_manifests, settings.retain_manifests_days * DAY_MS),
        "calls": Duty(retention.forget_calls, settings.retain_calls_days * DAY_MS),
        "runs": Duty(retention.forget_runs, settings.retain_runs_days * DAY_MS),
    }
    return {kind: duty for kind, duty in duties.items() if duty.age_ms}


async def sweep_forever(database: Database, store: FrameStore, duties: Mapping[str, Duty]) -> None:
    """Until cancelled. Workers that were started together sweep at different times."""
    while True:
        await asyncio.sleep(random.uniform(0.5, 1.5) * SWEEP_S)  # noqa: S311 - no secret
        await sweep(database, store, duties)


async def sweep(database: Database, store: FrameStore, duties: Mapping[str, Duty]) -> None:
    """One round of everything that is due. A duty that fails does not keep the others, or the worker, from theirs."""
    for kind, duty in duties.items():
        try:
            await _sweep_one(database, store, kind, duty)
        except (StoreUnavailable, CommitUnknown) as error:
            log.warning("old rows not deleted", kind=kind, error=str(error))
        except Exception:
            log.exception("old rows cannot be deleted", kind=kind)


async def _sweep_one(database: Database, store: FrameStore, kind: str, duty: Duty) -> None:
    """Delete batches for one round at most, so that many old rows of one kind do not hold up the other kinds."""
    rows, more, ends_at_s = 0, True, time.monotonic() + SWEEP_S
    while more:
        done = await database.write(duty.batch, age_ms=duty.age_ms)
        rows += done.rows
        FORGOTTEN.labels(kind=kind).inc(done.rows)
        await store.forget(done.streams)
        if more := done.more and time.monotonic() < ends_at_s:
            await asyncio.sleep(BREATH_S)
    if rows:
        log.info("old rows deleted", kind=kind, rows=rows)
