"""The depth of queues for whoever asks this gateway: looked at once a second at most, by however many."""

import asyncio
import time
from collections.abc import Callable

import structlog

from runyard.db.depth import read_beats
from runyard.db.engine import Database
from runyard.depth.pulse import LOOK_S, Pulse
from runyard.depth.queues import Depth, look
from runyard.errors import StoreUnavailable
from runyard.queue.depth import BrokerDepth

FRESH_S = 1.0

log = structlog.get_logger()


class Depths:
    """Belongs to the event loop. `run` watches the workers' beats, which no single look can judge."""

    def __init__(self, database: Database, broker: BrokerDepth, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._database = database
        self._broker = broker
        self._pulse = Pulse(clock)
        self._looking: asyncio.Task[Depth] | None = None
        self._looked_at = 0.0

    async def now(self) -> Depth:
        """At most a second old, but for a look that takes longer; whoever asks meanwhile gets the same.

        Raises:
            StoreUnavailable: the database is away.
        """
        if self._looking is None or self._is_over(self._looking):
            self._looked_at = self._clock()
            self._looking = asyncio.create_task(look(self._database, self._broker, lives=self._pulse.lives))
            self._looking.add_done_callback(lambda done: done.cancelled() or done.exception())
        return await asyncio.shield(self._looking)

    def _is_over(self, looking: asyncio.Task[Depth]) -> bool:
        if not looking.done():
            return False
        failed = looking.cancelled() or looking.exception() is not None
        return failed or self._clock() - self._looked_at >= FRESH_S

    async def run(self) -> None:
        while True:
            try:
                self._pulse.see(await self._database.read(read_beats))
            except StoreUnavailable as error:
                log.warning("beats not read", error=str(error))
            await asyncio.sleep(LOOK_S)
