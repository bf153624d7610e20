"""A runner on a worker's core, which starts, cancels and gives back runs."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.contract.execution.worker import GUARD_S, Settled, Worker
from tests.contract.store import states
from tests.fakes.publisher import FakePublisher

from runyard.db.claims import Claim
from runyard.db.workers import OwnRun
from runyard.frames import Frame
from runyard.ids import RunId
from runyard.lifecycle.accept import accept_turn
from runyard.lifecycle.cancelling import cancel_run
from runyard.runs import RunStatus
from runyard_workers.runner import Runner
from runyard_workers.slots import SlotPool


@dataclass(kw_only=True)
class Crew:
    """A runner with two slots, on a worker's core."""

    worker: Worker
    slots: SlotPool = field(default_factory=lambda: SlotPool(2))
    publisher: FakePublisher = field(default_factory=FakePublisher)

    def __post_init__(self) -> None:
        self.slots.open()
        self.runner = Runner(self.worker.services, self.slots, self.publisher)

    def start(self, claim: Claim) -> None:
        assert self.slots.reserve(0)
        self.runner.start(claim)

    async def left(self) -> None:
        """Until no run is here any more, and its slot is free."""
        async with asyncio.timeout(GUARD_S):
            await self.runner.left()
        assert [self.slots.reserve(0), self.slots.reserve(0)] == [True, True]
        self.slots.release()
        self.slots.release()

    async def stopped(self, run_id: RunId, *, instead: str, away: bool, seen: Sequence[Frame] = ()) -> Settled:
        """A run that was stopped as it left its worker has ended without waiting for a turn; `instead`, which the model
        answers with "Instead.", has run. Where the database was `away` again, the next claim ends the run.
        """
        worker = self.worker
        assert bool(self.publisher.woken) == bool(instead or away)
        if away:
            await worker.execution(await worker.claim_queued()).run()
        if instead:
            settled = (await worker.execute(await worker.claim_queued())).check()
            assert (settled.run.status, settled.result["text"]) == (RunStatus.COMPLETED, "Instead.")
        else:
            settled = (await worker.settled(run_id)).check(seen=seen)
            assert (settled.run.status, settled.run.cancel_requested) == (RunStatus.CANCELLED, False)
        assert len(worker.provider.requests) == (2 if instead else 1)
        return settled


async def stop(worker: Worker, run_id: RunId, *, instead: str = "") -> None:
    """A person stops the run, for good or for another call. Nobody tells the worker."""
    if instead:
        await worker.database.write(accept_turn, states.new_turn(continues=run_id, content=instead, if_busy="cancel"))
    else:
        await worker.database.write(cancel_run, run_id, states.OWNER, at=states.AT + 50)


async def give_back_all(runner: Runner) -> None:
    """As on a second signal: wherever the runs are."""
    hurry = asyncio.Event()
    hurry.set()
    await runner.hand_over_all(0, hurry)


def own(claim: Claim, *, taken_over: bool = False) -> list[OwnRun]:
    """What a beat reads of a claimed run."""
    generation = claim.run.generation + (2 if taken_over else 0)
    return [OwnRun(id=claim.run.id, generation=generation, cancel_requested=False)]


async def reached(event: asyncio.Event) -> None:
    async with asyncio.timeout(GUARD_S):
        await event.wait()
