"""The workers of a harness. The newest one takes every queued run, including those that an earlier one left."""

import asyncio
import math
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

from sqlalchemy.ext.asyncio import AsyncConnection

from runyard.clock import now_ms
from runyard.db import deaths, workers
from runyard.db.claiming import claim_best
from runyard.db.claims import GivenBack
from runyard.db.workers import Registration
from runyard.errors import WorkerGone
from runyard.ids import RunId, new_worker_id
from runyard_workers.runner import Runner
from runyard_workers.services import Services
from runyard_workers.slots import SlotPool
from runyard_workers.testing.workers import Worker, current_worker, is_current

SLOTS = 1_000
"""The slots of each worker: enough that no run of a test waits for one."""


class Fleet:
    """A worker's death is noticed at once, which takes seconds in production. What follows is the same.

    `fault`: set when the test itself is wrong and nothing can go on; its result is the error to raise.
    """

    def __init__(self, services: Services) -> None:
        self._services = services
        self._versions = {name: loaded.version for name, loaded in services.catalog.loaded.items()}
        self._queues = tuple({loaded.manifest["queue"] for loaded in services.catalog.loaded.values()})
        self._claiming = asyncio.Lock()
        self._workers: list[Worker] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self.loop = asyncio.get_running_loop()
        self.fault: asyncio.Future[BaseException] = self.loop.create_future()

    def is_elsewhere(self) -> bool:
        """Whether this is another thread than that of the workers' event loop."""
        try:
            return asyncio.get_running_loop() is not self.loop
        except RuntimeError:
            return self.loop.is_running()

    async def start_worker(self) -> None:
        """Start a new worker, which takes the queued runs from now on."""
        slots = SlotPool(SLOTS)
        slots.open()
        worker = Worker(id=new_worker_id(), slots=slots, runner=Runner(self._services, slots, self))
        registration = Registration(
            worker_id=worker.id,
            host="harness",
            slots=SLOTS,
            queues=self._queues,
            manifests={name: (it.version, dict(it.manifest)) for name, it in self._services.catalog.loaded.items()},
        )
        async with self._claiming:
            await self._services.database.write(_sync, workers.register, registration)
            self._workers.append(worker)

    def wake(self) -> None:
        """Claim what is queued, if anything is."""
        self._do(self._claim_all())

    def wake_all(self, runs: Iterable[GivenBack]) -> None:  # noqa: ARG002 - who looks finds them
        """Wake the workers, as a `Publisher` does with a message."""
        self.wake()

    async def tell_cancel(self, run_id: RunId) -> None:
        """Look at the run's row, which asks to cancel it."""
        for worker in self._workers:
            await worker.runner.cancel_if_asked(run_id)

    def crash(self) -> None:
        """Kill the worker whose code calls this, or else the newest one. Another worker takes its runs over."""
        worker = self._here()
        if not worker.is_dead:
            worker.is_dead = True
            worker.runner.drop_all()
            self._do(self._take_over(worker))

    async def hand_over(self) -> None:
        """Stop the worker whose code calls this, or else the newest one, as SIGTERM does: another worker goes on with
        each of its runs from the run's next boundary.
        """
        worker = self._here()
        if not (worker.is_leaving or worker.is_dead):
            worker.is_leaving = True
            await self.start_worker()
            self._do(self._leave(worker))

    def fail(self, error: BaseException) -> None:
        """Stop everything, and report `error` to the test."""
        if not self.fault.done():
            self.fault.set_result(error)
        self._drop_all()

    async def close(self) -> None:
        """Drop what runs."""
        self._drop_all()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, *(worker.runner.left() for worker in self._workers), return_exceptions=True)

    def _drop_all(self) -> None:
        for worker in self._workers:
            worker.is_dead = True
            worker.runner.drop_all()

    def _here(self) -> Worker:
        return current_worker() if is_current() else self._workers[-1]

    async def _claim_all(self) -> None:
        async with self._claiming:
            while not self.fault.done():
                worker = self._workers[-1]
                try:
                    claim = await claim_best(
                        self._services.database,
                        worker_id=worker.id,
                        queues=self._queues,
                        agents=self._versions,
                        redis_run_id=self._services.frame_server.run_id,
                        at=now_ms(),
                    )
                except WorkerGone:
                    return  # the worker that takes over looks again
                if claim is None:
                    return
                if not worker.is_dead:  # else it is given back with the other runs of the dead
                    worker.start(claim)

    async def _take_over(self, dead: Worker) -> None:
        await dead.runner.left()
        await self.start_worker()
        await self._services.database.write(_sync, deaths.bury, dead.id, 0)
        self.wake()

    async def _leave(self, leaving: Worker) -> None:
        await leaving.runner.hand_over_all(math.inf, asyncio.Event())
        if not leaving.is_dead:  # else its runs are another one's matter
            await self._services.database.write(_sync, workers.unregister, leaving.id)
        self.wake()

    def _do(self, work: Coroutine[Any, Any, None]) -> None:
        task = self.loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.fail(error)


async def _sync(connection: AsyncConnection, work: Callable[..., Any], *args: Any) -> Any:
    return await connection.run_sync(work, *args)
