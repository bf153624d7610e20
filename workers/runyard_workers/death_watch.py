"""Looks at the next workers along the ring every second, and buries those whose beat has stopped."""

import functools

import sqlalchemy as sa
import structlog

from runyard.db import deaths
from runyard.db.claims import GivenBack
from runyard.ids import WorkerId
from runyard.metrics import DEATHS
from runyard_workers.ring import Ring, Row, following_around

log = structlog.get_logger()


class DeathWatch:
    """Runs in the beat's thread, on the beat's link."""

    def __init__(self, engine: sa.Engine) -> None:
        self._engine = engine
        self._ring = Ring()

    def bury_dead(self, me: WorkerId) -> list[GivenBack]:
        """Look along the ring once. Returns the runs that were put back, for which workers have to be woken.

        Raises:
            sqlalchemy.exc.DBAPIError: the database is away.
        """
        given_back: list[GivenBack] = []
        for worker_id, beat in self._dead(me):
            with self._engine.begin() as connection:
                buried = deaths.bury(connection, worker_id, beat)
            if buried is not None:
                DEATHS.inc()
                log.warning("worker died", dead_worker_id=worker_id, worker_id=me, runs=len(buried))
                for run in buried:
                    log.info(
                        "run put back",
                        run_id=run.run_id,
                        invocation_id=run.invocation_id,
                        dead_worker_id=worker_id,
                        worker_id=me,
                    )
                given_back += buried
        return given_back

    def forget(self) -> None:
        """Forget what was seen of the others, since this worker's own beat failed."""
        self._ring.forget()

    def _dead(self, me: WorkerId) -> list[Row]:
        with self._engine.connect().execution_options(runyard_read=True) as connection:
            following = functools.partial(deaths.neighbours, connection)
            return self._ring.look_around(following_around(me, following))
