"""The announcement of a committed cancel: the run's id, on one channel for all workers. It may be lost."""

import structlog
from redis.asyncio import Redis

from runyard.errors import StoreUnavailable
from runyard.ids import RunId
from runyard.streams.connect import answered

log = structlog.get_logger()


def cancel_channel(prefix: str) -> str:
    return f"{prefix}:cancels"


async def tell_cancel(client: Redis, prefix: str, run_id: RunId) -> None:
    """Announce a cancel. If Redis is away, the worker's beat finds it in the row within 2 s."""
    try:
        async with answered():
            await client.publish(cancel_channel(prefix), run_id)
    except StoreUnavailable as error:
        log.warning("cancel not announced", run_id=run_id, error=str(error))
