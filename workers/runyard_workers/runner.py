"""The runs of this process. They are started when claimed, cancelled when their rows say so, dropped when they belong
to another worker, and given back when the process leaves.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

import structlog

from runyard import traces
from runyard.clock import now_ms
from runyard.db import claims
from runyard.db.claims import Claim, GivenBack
from runyard.db.records import Run
from runyard.db.turns import Totals
from runyard.db.workers import OwnRun
from runyard.errors import GenerationLost, HandOver, InternalError, StoreUnavailable
from runyard.ids import RunId
from runyard.lifecycle.cancelling import cancel_given_back
from runyard.lifecycle.setting_aside import set_aside
from runyard.metrics import HANDOVERS, LOST, TAKEOVERS, YIELDS
from runyard.runs import BUSY
from runyard_workers import spans
from runyard_workers.commits import database_backoff
from runyard_workers.execution import Execution
from runyard_workers.services import Services
from runyard_workers.slots import SlotPool

LEAVE_POLL_S = 0.2
GIVE_BACK_S = 10.0
"""How long the worker tries to give a run back while the database does not answer. After that, the run waits until the
others take this worker for dead, which counts as a death."""

log = structlog.get_logger()

Holding = tuple[RunId, int]
"""A run at a generation."""


MustYield = Callable[[str, Counter[str]], Awaitable[bool]]
"""`runyard_workers.shares.Shares.must_yield`."""


class Wakes(Protocol):
    """The part of `runyard.queue.wakeups.Publisher` that the runner needs."""

    def wake_all(self, runs: Sequence[GivenBack]) -> None: ...


class Runner:
    """Belongs to the event loop. Each run holds the slot that was reserved for its claim until it leaves."""

    def __init__(
        self, services: Services, slots: SlotPool, publisher: Wakes, *, must_yield: MustYield | None = None
    ) -> None:
        self._services = services
        self._slots = slots
        self._publisher = publisher
        self._must_yield = must_yield
        self._executions: dict[Holding, Execution] = {}
        self._tenants: Counter[str] = Counter()
        self._tasks: dict[Holding, asyncio.Task[None]] = {}
        self._background: set[asyncio.Task[None]] = set()
        self._missing: set[Holding] = set()
        self._unheld: set[Holding] = set()
        self._leaving = False

    def start(self, claim: Claim) -> None:
        """Execute a claimed run; its slot now belongs to it."""
        if claim.is_takeover:
            TAKEOVERS.labels(claim.run.agent).inc()
        holding = (claim.run.id, claim.run.generation)
        task = asyncio.create_task(self._execute(claim, holding), name=claim.run.id)
        self._tasks[holding] = task
        self._tenants[claim.run.tenant_id] += 1
        task.add_done_callback(lambda _: self._left(holding, claim.run.tenant_id))

    def compare(self, stored: Sequence[OwnRun]) -> None:
        """Compare what the beat read with what runs here.

        A run whose row asks for it is cancelled. Other differences count when two beats in a row show them, since a
        claim or a settlement may be in progress between the two readings. A run that is no longer ours is dropped. One
        that nobody runs here, because its claim's commit had an unknown outcome, is given back.
        """
        for run in stored:
            if run.cancel_requested:
                self._cancel((run.id, run.generation))
        theirs = {(run.id, run.generation) for run in stored}
        mine = set(self._tasks)
        missing, self._missing = self._missing, mine - theirs
        for holding in missing & self._missing:
            self._drop(holding)
        unheld, self._unheld = self._unheld, theirs - mine
        for holding in unheld & self._unheld:
            self._keep(asyncio.create_task(self._give_back(holding)))

    def _drop(self, holding: Holding) -> None:
        LOST.inc()
        log.info("run lost", run_id=holding[0], generation=holding[1])
        self._tasks[holding].cancel()

    def look_at(self, run_id: RunId) -> None:
        """An announcement says that this run is to be cancelled: look at its row in the background."""
        for holding in self._held(run_id):
            self._keep(asyncio.create_task(self._cancel_if_asked(holding)))

    async def cancel_if_asked(self, run_id: RunId) -> None:
        """Look at the run's row, and cancel the run if the row asks for it. Nothing happens if it does not run here."""
        for holding in self._held(run_id):
            await self._cancel_if_asked(holding)

    def _held(self, run_id: RunId) -> list[Holding]:
        return [holding for holding in self._tasks if holding[0] == run_id]

    async def left(self) -> None:
        """Wait until no run is here."""
        while self._tasks:
            await asyncio.wait([*self._tasks.values()])

    async def _cancel_if_asked(self, holding: Holding) -> None:
        try:
            asked = await self._services.database.read(claims.is_cancel_requested, *holding)
        except StoreUnavailable as error:
            log.warning("cancel waits for the next beat", run_id=holding[0], error=str(error))
            return
        if asked:
            self._cancel(holding)

    def _cancel(self, holding: Holding) -> None:
        if execution := self._executions.get(holding):
            execution.cancel()

    def _keep(self, task: asyncio.Task[None]) -> None:
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    def drop_all(self) -> None:
        """Drop all runs: the other workers took this one for dead, so its runs are theirs or queued."""
        for holding in self._tasks:
            self._drop(holding)

    async def hand_over_all(self, grace_s: float, hurry: asyncio.Event) -> None:
        """Give every run back at its next boundary; returns when all have left.

        After `grace_s`, runs that can be begun again elsewhere are stopped where they are. The others are waited for: a
        tool that may have acted must not be cut off, and its timeout bounds the wait. `hurry` gives all runs back at
        once.
        """
        self._leaving = True
        for execution in self._executions.values():
            execution.leave()
        deadline = asyncio.get_running_loop().time() + grace_s
        while self._tasks and not hurry.is_set():
            await asyncio.wait([*self._tasks.values()], timeout=LEAVE_POLL_S, return_when=asyncio.FIRST_COMPLETED)
            if asyncio.get_running_loop().time() >= deadline:
                await self._stop([holding for holding, run in self._executions.items() if run.may_be_dropped()])
        await self._stop(list(self._tasks))
        await asyncio.gather(*map(self._give_back, self._unheld), *self._background)

    async def _stop(self, leaving: Sequence[Holding]) -> None:
        """Stop runs where they are and put them back into the queue."""
        stopping = [(holding, self._tasks[holding], self._executions.get(holding)) for holding in leaving]
        for _, task, _ in stopping:
            task.cancel()
        await asyncio.gather(*(task for _, task, _ in stopping), return_exceptions=True)
        await asyncio.gather(
            *(
                self._give_back(holding, spent=None if execution is None else execution.spent())
                for holding, _, execution in stopping
            )
        )

    async def _give_back(self, holding: Holding, *, sent: int | None = None, spent: Totals | None = None) -> None:
        run_id, generation = holding
        loop, backoff = asyncio.get_running_loop(), database_backoff()
        give_up_at = loop.time() + GIVE_BACK_S
        while True:
            try:
                given = await self._services.database.write(
                    claims.give_back, run_id, generation, sent=sent, spent=spent
                )
                break
            except StoreUnavailable as error:
                if loop.time() >= give_up_at:
                    log.warning("run not given back", run_id=run_id, generation=generation, error=str(error))
                    return
            await asyncio.sleep(backoff.next_s())
        if given is None:
            return
        HANDOVERS.inc()
        log.info("run given back", run_id=run_id, invocation_id=given.invocation_id, generation=generation)
        await self._pass_on(given)

    def pass_on(self, runs: Sequence[GivenBack]) -> None:
        """Runs of a dead worker are queued again: end those that are to be stopped, and wake workers for the others."""
        for given in runs:
            self._keep(asyncio.create_task(self._pass_on(given)))

    async def _pass_on(self, given: GivenBack) -> None:
        if not (given.cancel_requested and await self._settle_cancelled(given.run_id)):
            self._publisher.wake_all([given])

    async def _settle_cancelled(self, run_id: RunId) -> bool:
        """Settle a run that is back in the queue and is to be stopped. Returns whether no worker is needed for it."""
        try:
            cancelled = await self._services.database.write(cancel_given_back, run_id, at=now_ms())
        except StoreUnavailable as error:
            log.warning("cancel waits for the next worker", run_id=run_id, error=str(error))
            return False
        if cancelled is None:
            return False
        assert cancelled.ending is not None, "it had an invocation"
        log.info("run cancelled", run_id=run_id, invocation_id=cancelled.run.invocation_id)
        self._services.closer.close(cancelled.ending)
        return cancelled.status not in BUSY

    async def _execute(self, claim: Claim, holding: Holding) -> None:
        """Runs in a task of its own, so that everything logged in it, including authors' lines, names the run."""
        with spans.invoking(claim), structlog.contextvars.bound_contextvars(**_names(claim)):
            log.info("run claimed", agent=claim.run.agent, takeover=claim.is_takeover)
            await self._drive(claim, holding)

    async def _drive(self, claim: Claim, holding: Holding) -> None:
        try:
            loaded = self._services.catalog.loaded[claim.run.agent]
            execution = Execution(self._services, claim, loaded, must_yield=lambda: self._yields(claim.run.tenant_id))
            self._executions[holding] = execution
            if self._leaving:  # claimed at the last moment
                execution.leave()
            await execution.run()
            if execution.replacement is not None:
                self._publisher.wake_all([execution.replacement])
        except GenerationLost:
            LOST.inc()
            spans.left("lost")
            log.info("run changed hands")
        except HandOver:
            if execution.has_yielded:
                YIELDS.inc()
            spans.left("handed_over")
            await self._give_back(holding, sent=execution.sent, spent=execution.spent())
        except asyncio.CancelledError:
            spans.left("dropped")
            raise
        except Exception as error:
            spans.left("dropped", error_type=type(error).__name__)
            log.exception("run left by an unexpected error")
            await self._set_aside(claim.run, InternalError(f"Internal error ({type(error).__name__})"))

    async def _set_aside(self, run: Run, error: InternalError) -> None:
        """Fail a run that could not be settled. Given back, it would fail in the same way again and again, each time
        after another paid call.
        """
        try:
            await self._services.database.write(set_aside, run, error, at=now_ms())
        except StoreUnavailable as unavailable:
            # The row still says running here, so the beat's comparison gives the run back.
            log.warning("run not set aside", error=str(unavailable))

    async def _yields(self, tenant_id: str) -> bool:
        return self._must_yield is not None and await self._must_yield(tenant_id, self._tenants)

    def _left(self, holding: Holding, tenant_id: str) -> None:
        del self._tasks[holding]
        self._tenants -= Counter([tenant_id])  # a tenant without runs is removed
        self._executions.pop(holding, None)
        self._slots.release()


def _names(claim: Claim) -> dict[str, Any]:
    names: dict[str, Any] = {
        "run_id": claim.run.id,
        "invocation_id": claim.invocation.id,
        "generation": claim.run.generation,
        "worker_id": claim.run.worker_id,
    }
    if (trace_id := traces.current_trace_id()) is not None:
        names["trace_id"] = trace_id
    return names
