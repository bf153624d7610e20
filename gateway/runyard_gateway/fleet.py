"""Which workers live and what they serve. Read every 2 s, since one read cannot show whether a beat rises."""

import asyncio
import time
from collections.abc import Callable

import structlog

from runyard.db.depth import read_workers
from runyard.db.engine import Database
from runyard.depth.pulse import LOOK_S, Pulse
from runyard.errors import InternalError, StoreUnavailable
from runyard.ids import WorkerId

FRESH_S = 1.0

log = structlog.get_logger()


class Fleet:
    """Belongs to the event loop. `run` watches the workers' beats."""

    def __init__(self, database: Database, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._database = database
        self._clock = clock
        self._pulse = Pulse(clock)
        self._looked_at = float("-inf")
        self._served: frozenset[tuple[str, str]] | None = None

    def lives(self, worker_id: WorkerId) -> bool:
        return self._pulse.lives(worker_id)

    def serves(self, queue: str, agent: str) -> bool:
        """Whether a living worker that is not leaving takes such runs. True until the workers were read once."""
        return self._served is None or (queue, agent) in self._served

    async def run(self) -> None:
        """Until cancelled. A row that cannot be read must not end the gateway, whose readers need no worker's row."""
        while True:
            try:
                await self.look()
            except StoreUnavailable as error:
                log.warning("workers not read", error=str(error))
            except Exception:
                log.exception("workers unreadable", code=InternalError.code)
            await asyncio.sleep(LOOK_S)

    async def refresh(self) -> None:
        """Read the workers again, unless they were read within the last second. To be called before a caller is told
        that there is no worker.
        """
        if self._clock() - self._looked_at >= FRESH_S:
            await self.look()

    async def look(self) -> None:
        self._looked_at = self._clock()
        workers = await self._database.read(read_workers)
        self._pulse.see({worker.id: worker.beat for worker in workers})
        self._served = frozenset(
            (queue, agent)
            for worker in workers
            if not worker.draining and self._pulse.lives(worker.id)
            for queue in worker.queues
            for agent in worker.agents
        )
