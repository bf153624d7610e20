"""A runner on a worker's core: runs that are started, told of cancels, given up."""

import asyncio
from dataclasses import dataclass, field

from tests.contract.execution.worker import GUARD_S, Worker
from tests.fakes.publisher import FakePublisher

from runyard.db.claims import Claim
from runyard.db.workers import OwnRun
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
