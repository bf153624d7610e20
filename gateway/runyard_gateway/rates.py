"""How many calls a minute a user and a tenant may make, counted in Redis for all gateways together."""

import asyncio
from collections.abc import Callable
from importlib.resources import files

import structlog
from redis.asyncio import Redis

from runyard.errors import RateLimited, StoreUnavailable
from runyard.settings import Settings
from runyard.streams.connect import answered

REPLY_TIMEOUT_S = 0.5
"""How long a silent Redis may hold up a call."""

log = structlog.get_logger()


class Rates:
    """Token buckets: each holds a minute's calls and refills evenly, so a burst can pass.

    While Redis is away every call passes, since it is better to accept too much than nothing.
    """

    def __init__(self, client: Redis, settings: Settings, *, redis_away: Callable[[], bool]) -> None:
        self._user_per_min = settings.rate_user_per_min
        self._tenant_per_min = settings.rate_tenant_per_min
        self._prefix = settings.prefix
        self._redis_away = redis_away
        self._take = client.register_script(files("runyard_gateway").joinpath("rates.lua").read_text())

    async def take(self, tenant_id: str, user_id: str, *, address: str) -> None:
        """Count one call for this user, whoever makes it. Calls without a user ("") are counted by the address that
        they come from.

        Raises:
            RateLimited: there were too many; nothing is counted.
        """
        buckets = self._buckets(tenant_id, user_id or f"\0{address}")
        if not buckets or self._redis_away():
            return
        try:
            async with asyncio.timeout(REPLY_TIMEOUT_S), answered():
                wait_ms = await self._take(keys=list(buckets), args=list(buckets.values()))
        except (StoreUnavailable, TimeoutError) as error:
            log.warning("calls are not counted", error=str(error) or "Redis is silent")
            return
        if wait_ms:
            raise RateLimited("too many calls: send this one again later", retryAfterMs=wait_ms)

    def _buckets(self, tenant_id: str, caller: str) -> dict[str, int]:
        # No name can hold a NUL, so no two pairs make one key, and no address makes a user's.
        limits = {
            f"{self._prefix}:rate:tenant:{tenant_id}": self._tenant_per_min,
            f"{self._prefix}:rate:user:{tenant_id}\0{caller}": self._user_per_min,
        }
        return {key: limit for key, limit in limits.items() if limit}
