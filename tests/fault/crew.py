"""The workers of one test: they are killed and frozen, and who lives is never taken for dead by the others."""

import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from tests.integration.processes import Process, eventually
from tests.integration.stack import Stack


class Crew:
    """A worker is a process; each row that it has in the database is one of its lives."""

    def __init__(self, stack: Stack, exits: AsyncExitStack) -> None:
        self._stack = stack
        self._exits = exits
        self.workers: list[Process] = []
        self._silenced: set[Process] = set()

    async def join(self, count: int = 1, **settings: str) -> list[Process]:
        """Start so many at the same time; they serve when it returns."""
        joining = [self._exits.enter_context(self._stack.process("runyard_workers", **settings)) for _ in range(count)]
        for worker in joining:
            await worker.logged("worker registered")
        self.workers += joining
        return joining

    def kill(self, worker: Process) -> None:
        self._silenced.add(worker)
        worker.kill()

    async def killed_itself(self) -> Process:
        """The next worker that is dead without anybody's doing."""

        def found() -> Process | None:
            return next((worker for worker in self.living if worker.exit_code is not None), None)

        worker: Process = await eventually(found, "worker that killed itself")
        assert worker.exit_code == -signal.SIGKILL
        self._silenced.add(worker)
        return worker

    def freeze(self, worker: Process) -> None:
        self._silenced.add(worker)
        worker.send(signal.SIGSTOP)

    def thaw(self, worker: Process) -> None:
        worker.send(signal.SIGCONT)

    @property
    def living(self) -> list[Process]:
        return [worker for worker in self.workers if worker not in self._silenced]

    async def buried(self, worker: Process) -> dict[str, Any]:
        """What another worker logged when it took this one away."""

        def found() -> dict[str, Any] | None:
            return next((burial for burial in self.burials() if burial["dead_worker_id"] in lives(worker)), None)

        burial: dict[str, Any] = await eventually(found, f"burial of the worker that logs to {worker.log.name}")
        return burial

    def burials(self) -> list[dict[str, Any]]:
        return [event for worker in self.workers for event in worker.events("worker died")]

    def holder(self, run_id: str) -> Process:
        """Who runs it."""
        query = "SELECT worker_id FROM agent_runs WHERE id = :run"
        ((worker_id,),) = self._stack.execute(query, run=run_id)
        return next(worker for worker in self.workers if worker_id in lives(worker))

    def held_by(self, worker: Process) -> set[str]:
        """The runs that are its own by their rows."""
        rows = self._stack.execute("SELECT id, worker_id FROM agent_runs WHERE status = 'running'")
        return {run_id for run_id, worker_id in rows if worker_id in lives(worker)}

    async def leave(self) -> None:
        """Ask all to leave, and look back: they did so by themselves, and nobody who lived was buried."""
        for worker in self.living:
            worker.send(signal.SIGTERM)
        for worker in self.living:
            assert await worker.exited() == 0
            assert worker.complaints() == []
            assert worker.events("worker is taken for dead") == []
        silenced = {life for worker in self._silenced for life in lives(worker)}
        assert {burial["dead_worker_id"] for burial in self.burials()} <= silenced


def lives(worker: Process) -> set[str]:
    """The ids that it had: a new one after it was taken for dead."""
    return {event["worker_id"] for event in worker.events("worker registered")}


@asynccontextmanager
async def working(stack: Stack) -> AsyncIterator[Crew]:
    async with AsyncExitStack() as exits:
        crew = Crew(stack, exits)
        yield crew
        await crew.leave()
