"""The workers of a harness, one after the other. The newest takes everything that is queued, including what an earlier
one left.
"""

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


class Crew:
    """The workers. A death is noticed at once, where a fleet takes seconds; what follows is the same as in a fleet.

    `fault`: set to the reason when nothing can go on because the test itself is wrong.
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
        """Whether the calling thread is not the one whose event loop runs, or may run, the workers."""
        try:
            return asyncio.get_running_loop() is not self.loop
        except RuntimeError:
            return self.loop.is_running()

    async def hire(self) -> None:
        """Start a new worker, which takes everything that is queued from now on."""
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
        """Look for queued runs, since there may be some."""
        self._do(self._claim_all())

    def wake_all(self, runs: Iterable[GivenBack]) -> None:  # noqa: ARG002 - who looks finds them
        """Wake the workers, as a `Publisher` does with a message."""
        self.wake()

    async def tell_cancel(self, run_id: RunId) -> None:
        """Look at the run's row, which asks to cancel it."""
        for worker in self._workers:
            await worker.runner.cancel_if_asked(run_id)

    def crash(self) -> None:
        """Kill the worker whose code calls this, else the newest; another one takes its runs over."""
        worker = self._here()
        if not worker.is_dead:
            worker.is_dead = True
            worker.runner.drop_all()
            self._do(self._take_over(worker))

    async def hand_over(self) -> None:
        """Make the worker whose code calls this, else the newest, leave as on SIGTERM: another one goes on with its
        runs, each from its next boundary.
        """
        worker = self._here()
        if not (worker.is_leaving or worker.is_dead):
            worker.is_leaving = True
            await self.hire()
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
                    return  # whoever takes over from it looks again
                if claim is None:
                    return
                if not worker.is_dead:  # else it is given back with the other runs of the dead
                    worker.start(claim)

    async def _take_over(self, dead: Worker) -> None:
        await dead.runner.left()
        await self.hire()
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
