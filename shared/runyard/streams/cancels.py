"""The wake-up for a cancel that is committed: a run's id on one channel that all workers hear. It may be lost."""

import structlog
from redis.asyncio import Redis
from redis.exceptions import RedisError

from runyard.ids import RunId

log = structlog.get_logger()


def cancel_channel(prefix: str) -> str:
    return f"{prefix}:cancels"


async def tell_cancel(client: Redis, prefix: str, run_id: RunId) -> None:
    """Redis away: the worker's beat finds the row within 2 s."""
    try:
        await client.publish(cancel_channel(prefix), run_id)
    except (RedisError, OSError) as error:
        log.warning("cancel not announced", run_id=run_id, error=repr(error))
