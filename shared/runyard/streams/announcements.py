"""The announcement, for feeds, that something was committed: on one channel for all gateways. It may be lost."""

import asyncio

import structlog
from redis.asyncio import Redis

from runyard.errors import StoreUnavailable
from runyard.streams.connect import answered

APART_S = 0.1
"""At most ten announcements a second from a process, however many commits it makes."""

AWAY_S = 5.0

log = structlog.get_logger()


def changes_channel(prefix: str) -> str:
    return f"{prefix}:changes"


class Announcer:
    """`changed` only sets a flag; `run` publishes."""

    def __init__(self, client: Redis, *, prefix: str) -> None:
        self._client = client
        self._channel = changes_channel(prefix)
        self._changed = asyncio.Event()

    def changed(self) -> None:
        self._changed.set()

    async def run(self) -> None:
        """Until cancelled. While Redis is away, gateways look by themselves."""
        warned = False
        while True:
            await self._changed.wait()
            self._changed.clear()
            try:
                async with answered():
                    await self._client.publish(self._channel, b"")
                warned = False
                await asyncio.sleep(APART_S)
            except StoreUnavailable as error:
                if not warned:
                    log.warning("changes not announced", error=str(error))
                warned = True
                await asyncio.sleep(AWAY_S)
