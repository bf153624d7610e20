"""The depth of queues, read at most once a second for any number of callers."""

import asyncio
import time
from collections.abc import Awaitable, Callable

from runyard.db.engine import Database
from runyard.db.limits import Limits
from runyard.depth.queues import Depth, look
from runyard.ids import WorkerId
from runyard.queue.depth import BrokerDepth

FRESH_S = 1.0


class Depths:
    """Belongs to the event loop. `lives`: `Fleet.lives`; `limits`: `AgentDirectory.limits`."""

    def __init__(
        self,
        database: Database,
        broker: BrokerDepth,
        *,
        lives: Callable[[WorkerId], bool],
        limits: Callable[[], Awaitable[Limits]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock = clock
        self._database = database
        self._broker = broker
        self._lives = lives
        self._limits = limits
        self._looking: asyncio.Task[Depth] | None = None
        self._looked_at = 0.0

    async def now(self) -> Depth:
        """The depth, at most a second old unless reading it takes longer. Calls during a read share its result.

        Raises:
            StoreUnavailable: the database is away.
        """
        if self._looking is None or self._is_over(self._looking):
            self._looked_at = self._clock()
            self._looking = asyncio.create_task(self._look())
            self._looking.add_done_callback(lambda done: done.cancelled() or done.exception())
        return await asyncio.shield(self._looking)

    async def _look(self) -> Depth:
        return await look(self._database, self._broker, lives=self._lives, limits=await self._limits())

    def _is_over(self, looking: asyncio.Task[Depth]) -> bool:
        if not looking.done():
            return False
        failed = looking.cancelled() or looking.exception() is not None
        return failed or self._clock() - self._looked_at >= FRESH_S
