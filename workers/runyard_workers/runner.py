"""The runs of this process: started when claimed, dropped when lost, given back when the process leaves."""

import asyncio

import structlog

from runyard.db import claims
from runyard.db.claims import Claim
from runyard.errors import GenerationLost, StoreUnavailable
from runyard.ids import RunId
from runyard.queue.wakeups import Publisher
from runyard_workers.execution import Execution
from runyard_workers.services import Services
from runyard_workers.slots import SlotPool

log = structlog.get_logger()

Holding = tuple[RunId, int]
"""A run at a generation."""


class Runner:
    """Belongs to the event loop. Each run holds the slot that was reserved for its claim until it leaves."""

    def __init__(self, services: Services, slots: SlotPool, publisher: Publisher) -> None:
        self._services = services
        self._slots = slots
        self._publisher = publisher
        self._tasks: dict[Holding, asyncio.Task[None]] = {}
        self._background: set[asyncio.Task[None]] = set()
        self._missing: set[Holding] = set()
        self._unheld: set[Holding] = set()

    def start(self, claim: Claim) -> None:
        """Execute a claimed run; takes over the slot."""
        holding = (claim.run.id, claim.run.generation)
        task = asyncio.create_task(self._execute(claim), name=claim.run.id)
        self._tasks[holding] = task
        task.add_done_callback(lambda _: self._left(holding))

    def compare(self, stored: dict[RunId, int]) -> None:
        """Hold what the beat read against what runs here.

        A difference counts when two beats in a row show it: a claim or a settlement may be on its way between the two
        readings. A run that is no longer ours is dropped; one that nobody runs here (its claim's commit had an unknown
        outcome) is given back.
        """
        theirs = set(stored.items())
        mine = set(self._tasks)
        missing, self._missing = self._missing, mine - theirs
        for holding in missing & self._missing:
            log.info("run lost", run_id=holding[0], generation=holding[1])
            self._tasks[holding].cancel()
        unheld, self._unheld = self._unheld, theirs - mine
        for holding in unheld & self._unheld:
            self._keep(asyncio.create_task(self._give_back(holding)))

    def _keep(self, task: asyncio.Task[None]) -> None:
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    def drop_all(self) -> None:
        """The worker is taken for dead: its runs belong to nobody or to others."""
        for task in self._tasks.values():
            task.cancel()

    async def give_back_all(self) -> None:
        """Stop every run where it is and put it back into the queue; returns when all are."""
        leaving = dict(self._tasks)
        for task in leaving.values():
            task.cancel()
        await asyncio.gather(*leaving.values(), return_exceptions=True)
        await asyncio.gather(*map(self._give_back, {*leaving, *self._unheld}), *self._background)

    async def _give_back(self, holding: Holding) -> None:
        run_id, generation = holding
        try:
            given = await self._services.database.write(claims.give_back, run_id, generation)
        except StoreUnavailable as error:
            # The row still names this worker: it is put back when the worker's beat is missed.
            log.warning("run not given back", run_id=run_id, generation=generation, error=str(error))
            return
        if given is None:
            return
        log.info("run given back", run_id=run_id, generation=generation)
        self._publisher.wake(run_id=given.run_id, invocation_id=given.invocation_id, queue=given.queue)

    async def _execute(self, claim: Claim) -> None:
        names = {"run_id": claim.run.id, "generation": claim.run.generation}
        try:
            await Execution(self._services, claim, self._services.catalog.agents[claim.run.agent]).run()
        except GenerationLost:
            log.info("run changed hands", **names)
        except Exception:
            # Nothing was settled: the row still says running here, so the beat's comparison gives the run back.
            log.exception("run left by an unexpected error", **names)

    def _left(self, holding: Holding) -> None:
        del self._tasks[holding]
        self._slots.release()
