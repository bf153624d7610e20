"""The beat: a thread beside the event loop, with a database link of its own, that shows every 2 s that the process
lives.

The same statements return the runs that belong to this worker, so the cost does not grow with their number. The thread
also ends the process if its event loop is stuck; the other workers then miss the beat and put the runs back.
"""

import asyncio
import contextlib
import os
import threading
import time
from collections.abc import Callable

import sqlalchemy as sa
import structlog

from runyard import logs
from runyard.beats import BEAT_S
from runyard.db import workers
from runyard.db.claims import GivenBack
from runyard.db.engine import sync_engine
from runyard.db.workers import OwnRun, Registration
from runyard.errors import StartError, WorkerGone
from runyard.ids import WorkerId
from runyard_workers.death_watch import DeathWatch
from runyard_workers.liveness import Liveness

ROUND_S = 1.0
"""In each round the thread looks at the other workers."""

ROUNDS_A_BEAT = int(BEAT_S / ROUND_S)

STATEMENT_TIMEOUT_MS = 2_000
STUCK_ROUNDS = 60
"""After so many rounds without a turn of the event loop the process ends. Rounds, not seconds, are counted: a process
that was frozen for minutes, by a debugger or a paused container, is not stuck when it goes on."""

STUCK_EXIT_CODE = 70  # EX_SOFTWARE, sysexits.h
SEE_MANIFESTS_S = 3_600.0

log = structlog.get_logger()


class Beat:
    """Registers the worker, beats, and deletes its row at the end.

    It calls, on the event loop: `on_beat` with the runs that belong to this worker, `on_gone` when its row was deleted,
    and `on_given_back` with the runs of a dead worker. `registration` makes a registration with a new id at each call:
    a worker whose row was deleted registers again under another id.
    """

    def __init__(
        self,
        database_url: str,
        registration: Callable[[], Registration],
        *,
        liveness: Liveness,
        on_beat: Callable[[list[OwnRun]], None],
        on_gone: Callable[[], None],
        on_given_back: Callable[[list[GivenBack]], None],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._liveness = liveness
        self._engine = sync_engine(database_url, statement_timeout_ms=STATEMENT_TIMEOUT_MS)
        self._registration = registration
        self._on_beat = on_beat
        self._on_gone = on_gone
        self._on_given_back = on_given_back
        self._deaths = DeathWatch(self._engine)
        self._stop = threading.Event()
        self._draining = False
        self._thread = threading.Thread(target=self._run, name="beat", daemon=True)
        self._ticked = threading.Event()
        self._rounds_without_tick = 0
        self._manifests_seen_at = 0.0
        self.worker_id: WorkerId

    def start(self) -> None:
        """Register and begin; blocks until the row is there.

        Raises:
            StartError: the database is away, or is a standby.
        """
        try:
            self._register()
        except sa.exc.DBAPIError as error:
            raise StartError("the database does not answer or cannot be written (RUNYARD_DATABASE_URL)") from error
        self._thread.start()

    def tick(self) -> None:
        """To be called on the event loop every second: shows that it is not stuck."""
        self._ticked.set()

    def drain(self) -> None:
        """Show in the worker's row, from the next beat on, that it takes no more runs."""
        self._draining = True

    def stop(self) -> None:
        """End the beat and delete the row; the worker must hold no run. Blocks for a few seconds at most."""
        self._stop.set()
        self._thread.join()
        try:
            with self._engine.begin() as connection:
                workers.unregister(connection, self.worker_id)
        except sa.exc.DBAPIError as error:
            # The others find the beat unchanged and delete the row.
            log.warning("worker not unregistered", worker_id=self.worker_id, error=str(error.orig))
        self._engine.dispose()

    def _register(self) -> None:
        registration, now = self._registration(), time.monotonic()
        with self._engine.begin() as connection:
            workers.register(connection, registration)
        self.worker_id = registration.worker_id
        logs.identify(worker_id=self.worker_id)
        self._manifests_seen_at = now
        self._liveness.seen(now)
        log.info("worker registered", worker_id=self.worker_id, agents=sorted(registration.manifests))

    def _run(self) -> None:
        rounds = 0
        while not self._stop.wait(ROUND_S):
            rounds += 1
            self._end_if_stuck()
            try:
                if rounds >= ROUNDS_A_BEAT:
                    self._beat_once(time.monotonic())
                    rounds = 0  # one that failed is tried again in the next round: others may be back already
                if given_back := self._deaths.bury_dead(self.worker_id):
                    self._on_loop(self._on_given_back, given_back)
            except sa.exc.DBAPIError as error:
                self._deaths.forget()
                log.warning("beat failed", worker_id=self.worker_id, error=str(error.orig))
            except Exception:
                # If this thread ended, the process would start nothing any more, and nobody would end it.
                self._deaths.forget()
                log.exception("beat failed unexpectedly", worker_id=self.worker_id)

    def _end_if_stuck(self) -> None:
        self._rounds_without_tick = 0 if self._ticked.is_set() else self._rounds_without_tick + 1
        self._ticked.clear()
        if self._rounds_without_tick >= STUCK_ROUNDS:
            log.critical("event loop is stuck: the process ends", worker_id=self.worker_id)
            os._exit(STUCK_EXIT_CODE)

    def _beat_once(self, now: float) -> None:
        try:
            with self._engine.begin() as connection:
                runs = workers.beat(connection, self.worker_id, draining=self._draining)
                if now - self._manifests_seen_at > SEE_MANIFESTS_S:
                    workers.see_manifests(connection, self._registration())
                    self._manifests_seen_at = now
        except WorkerGone:
            log.warning("worker is taken for dead", worker_id=self.worker_id)
            self._deaths.forget()
            self._on_loop(self._on_gone)
            self._register()
        else:
            self._liveness.seen(now)
            self._on_loop(self._on_beat, runs)

    def _on_loop(self, callback: Callable[..., None], *arguments: object) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: the process ends
            self._loop.call_soon_threadsafe(callback, *arguments)
