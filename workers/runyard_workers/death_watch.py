"""Reads the next workers along the ring every second, and buries those whose beat has stopped."""

import sqlalchemy as sa
import structlog

from runyard.db import deaths
from runyard.db.claims import GivenBack
from runyard.ids import WorkerId
from runyard_workers.ring import ALIVE_NEIGHBOURS, Ring

log = structlog.get_logger()


class DeathWatch:
    """Runs in the beat's thread, on the beat's link."""

    def __init__(self, engine: sa.Engine) -> None:
        self._engine = engine
        self._ring = Ring()

    def pass_round(self, me: WorkerId, now: float) -> list[GivenBack]:
        """One look around; the runs that were put back, for which somebody must be woken.

        Raises:
            sqlalchemy.exc.DBAPIError: the database is away.
        """
        self._ring.observe(self._read(me, now), now)
        given_back: list[GivenBack] = []
        for worker_id, beat in self._ring.dead(now):
            with self._engine.begin() as connection:
                buried = deaths.bury(connection, worker_id, beat)
            if buried is not None:
                log.warning("worker died", dead_worker_id=worker_id, worker_id=me, runs=len(buried))
                given_back += buried
        return given_back

    def deaf(self) -> None:
        """The worker's own beat failed: it cannot judge the others by what it saw before."""
        self._ring.forget()

    def _read(self, me: WorkerId, now: float) -> list[tuple[WorkerId, int]]:
        """Rows from the own id on, around the ring, until three living ones are passed or it comes back to itself."""
        passed: list[tuple[WorkerId, int]] = []
        alive = 0
        after: str = me
        with self._engine.connect().execution_options(runyard_read=True) as connection:
            for is_last_part in (False, True):
                while rows := deaths.neighbours(connection, after):
                    for worker_id, beat in rows:
                        if is_last_part and worker_id >= me:
                            return passed
                        passed.append((worker_id, beat))
                        alive += self._ring.is_alive(worker_id, beat, now)
                        if alive >= ALIVE_NEIGHBOURS:
                            return passed
                    after = rows[-1][0]
                after = ""
        return passed
