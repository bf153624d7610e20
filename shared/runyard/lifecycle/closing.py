"""Closing the stream of a settled invocation, even if Redis has lost frames that readers have seen."""

from collections.abc import Sequence
from typing import Protocol

import structlog

from runyard.db.closes import set_closing_base
from runyard.db.engine import Database
from runyard.lifecycle.endings import RESET_DISTANCE, Ending
from runyard.streams.ops import Answer, Close, Op

log = structlog.get_logger()


class Frames(Protocol):
    """The part of `runyard.streams.store.FrameStore` that closing a stream needs."""

    async def apply(self, ops: Sequence[Op]) -> list[Answer]: ...

    async def close(self, close: Close) -> Answer: ...

    async def forget(self, stream_ids: Sequence[str]) -> None: ...

    async def server_run_id(self) -> str: ...


def is_in_doubt(ending: Ending, server_run_id: str) -> bool:
    """Whether Redis (`Frames.server_run_id`) restarted since the invocation began.

    Then frames that belong to no row may be lost. Readers may have seen their numbers, so the closing frames must not
    use those again. (A worker that wrote the stream to its end knows what arrived and need not ask.)
    """
    return ending.redis_run_id is not None and server_run_id != ending.redis_run_id


def last_before(answer: Answer, ending: Ending) -> int:
    """The number of the last frame before the closing ones."""
    return answer.last - len(ending.frames())


async def close_by_reset(database: Database, store: Frames, ending: Ending, *, stored_last: int = 0) -> None:
    """Reset the stream: the committed text under new numbers, then the closing frames.

    `stored_last`: the highest number in Redis.

    Raises:
        StoreUnavailable: Redis or the database does not answer.
    """
    base = max(ending.last_frame, stored_last) + RESET_DISTANCE
    await database.write(set_closing_base, ending.run_id, ending.invocation_id, base)
    answer = await store.close(ending.close(base=base))
    log.warning("stream closed by a reset", stream_id=ending.stream_id, base=base, answer=answer.status)
