"""Workers and publishers as the queue sees them: slots, consumers, and the messages that were received."""

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Callable, Iterator

from tests.integration.processes import GUARD_S, eventually

from runyard.ids import new_invocation_id, new_run_id
from runyard.queue import broker as brokers
from runyard.queue.consumption import Consumption
from runyard.queue.wakeups import Publisher
from runyard_workers.slots import SlotPool


class CountingSlots(SlotPool):
    """Counts how often a consumer found no free slot."""

    refusals = 0

    def available(self, timeout_s: float = 0) -> bool:
        return self._counted(super().available(timeout_s))

    def reserve(self, timeout_s: float) -> bool:
        return self._counted(super().reserve(timeout_s))

    def _counted(self, granted: bool) -> bool:
        self.refusals += not granted
        return granted


class ListeningWorker:
    """Each message that comes takes its slot, as a run would that never ends; `finish_run` lets one go."""

    def __init__(
        self,
        url: str,
        prefix: str,
        *,
        slots: int = 1,
        queues: tuple[str, ...] = ("default",),
        claim: Callable[[], None] = lambda: None,
    ) -> None:
        self.slots = CountingSlots(slots)
        self.slots.open()
        self.broker = brokers.connect(url, prefix=prefix, slots=self.slots)
        self.woken = 0
        self._claim = claim
        self._counting = threading.Lock()
        self.consumption = Consumption(self.broker, prefix=prefix, queues=queues, on_wake=self._on_wake)
        self.consumption.start()

    def _on_wake(self) -> None:
        with self._counting:
            self.woken += 1
        self._claim()

    def finish_run(self) -> None:
        self.slots.release()

    async def has_looked_in_vain(self) -> None:
        """Its consumer has asked for a slot again and again, and got none."""
        before = self.slots.refusals
        await eventually(lambda: self.slots.refusals >= before + 2, "consumer that asks for a slot")

    async def has_free_slots(self, number: int) -> None:
        """A consumer that looks for a message has one for that moment."""

        def free() -> int:
            reserved = 0
            while self.slots.reserve(0):
                reserved += 1
            for _ in range(reserved):
                self.slots.release()
            return reserved

        await eventually(lambda: free() == number, f"{number} free slots: there are {free()}")

    async def has_woken(self, times: int) -> None:
        await eventually(lambda: self.woken >= times, f"wake-up number {times}: there were {self.woken}")

    def threads_have_ended(self) -> bool:
        worker = self.consumption._worker
        return not any(thread.is_alive() for thread in [*worker.workers, *worker.consumers.values()])

    async def stop(self) -> None:
        self.slots.close()
        await asyncio.to_thread(self.consumption.stop)
        self.broker.close()


@contextlib.asynccontextmanager
async def listening(
    url: str,
    prefix: str,
    *,
    slots: int = 1,
    queues: tuple[str, ...] = ("default",),
    claim: Callable[[], None] = lambda: None,
) -> AsyncIterator[ListeningWorker]:
    worker = ListeningWorker(url, prefix, slots=slots, queues=queues, claim=claim)
    try:
        yield worker
    finally:
        if not worker.threads_have_ended():
            await worker.stop()


@contextlib.asynccontextmanager
async def publishing(url: str, prefix: str) -> AsyncIterator[Publisher]:
    broker = brokers.connect(url, prefix=prefix)
    publisher = Publisher(broker, prefix=prefix)
    try:
        yield publisher
    finally:
        await publisher.close()
        broker.close()


def wake(publisher: Publisher, times: int = 1, *, queue: str = "default") -> None:
    for _ in range(times):
        publisher.wake(run_id=new_run_id(), invocation_id=new_invocation_id(), queue=queue)


async def sent(url: str, prefix: str, times: int = 1, *, queue: str = "default") -> None:
    """That many wake-ups, which the broker has when this returns."""
    async with publishing(url, prefix) as publisher:
        wake(publisher, times, queue=queue)


class Gate:
    """Holds the claims that come to it."""

    def __init__(self) -> None:
        self.reached = 0
        self._opened = threading.Semaphore(0)

    def hold(self) -> None:
        self.reached += 1
        assert self._opened.acquire(timeout=GUARD_S)

    def let_one_pass(self) -> None:
        self._opened.release()


@contextlib.contextmanager
def opening(gate: Gate, claims: int = 100) -> Iterator[Gate]:
    """Whatever a failing test leaves at the gate passes at the end."""
    try:
        yield gate
    finally:
        for _ in range(claims):
            gate.let_one_pass()
