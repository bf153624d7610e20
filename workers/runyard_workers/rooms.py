"""Broadcasts on their way to Redis, in the order in which they were made, each at most once."""

import asyncio
from collections import deque
from dataclasses import dataclass
from typing import Any, Protocol

import orjson
import structlog
from redis.asyncio import Redis

from runyard.authoring.rooms import RoomSink
from runyard.errors import StoreUnavailable
from runyard.rooms import room_channel
from runyard.streams.connect import answered

WAITING_MAX = 1_000
BATCH = 100

log = structlog.get_logger()


class Tenants(Protocol):
    """`Broadcasts`, as far as a run needs it."""

    def sink(self, tenant_id: str) -> RoomSink: ...


class Broadcasts:
    """One for the process, made on its event loop. If more than `WAITING_MAX` wait, the oldest are dropped, and so is
    what cannot be published: a room only has what is said while one is there.
    """

    def __init__(self, client: Redis, *, prefix: str) -> None:
        self._client = client
        self._prefix = prefix
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[tuple[str, bytes]] = deque(maxlen=WAITING_MAX)
        self._dropped = 0
        """Since the log last said so."""

        self._some = asyncio.Event()

    def sink(self, tenant_id: str) -> "TenantRooms":
        return TenantRooms(self, tenant_id)

    def put(self, tenant_id: str, room: str, event: str, data: Any) -> None:
        """May be called from any thread."""
        message = room_channel(self._prefix, tenant_id, room), orjson.dumps([event, data])
        self._loop.call_soon_threadsafe(self._put, message)

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self._some.wait()
            batch = [self._waiting.popleft() for _ in range(min(BATCH, len(self._waiting)))]
            if not self._waiting:
                self._some.clear()
            if self._dropped:
                log.warning("broadcasts dropped: more were made than Redis took", number=self._dropped)
                self._dropped = 0
            pipeline = self._client.pipeline(transaction=False)
            for channel, message in batch:
                pipeline.publish(channel, message)
            try:
                async with answered():
                    await pipeline.execute()
            except StoreUnavailable as error:
                log.warning("broadcasts lost", number=len(batch), error=str(error))

    def _put(self, message: tuple[str, bytes]) -> None:
        self._dropped += len(self._waiting) == WAITING_MAX
        self._waiting.append(message)
        self._some.set()


@dataclass(frozen=True, slots=True)
class TenantRooms:
    broadcasts: Broadcasts
    tenant_id: str

    def broadcast(self, room: str, event: str, data: Any) -> None:
        self.broadcasts.put(self.tenant_id, room, event, data)
