"""The workers of one test, to be killed and frozen. At the end, no living worker may have been taken for dead."""

import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from tests.fault.soundness import assert_sound
from tests.integration.processes import Process, eventually
from tests.integration.stack import Stack
from tests.previous import PreviousVersion

from runyard.clock import now_ms


class Crew:
    """A worker is a process; each row that it has in the database is one of its lives."""

    def __init__(self, stack: Stack, exits: AsyncExitStack) -> None:
        self._stack = stack
        self._exits = exits
        self.workers: list[Process] = []
        self._silenced: set[Process] = set()
        """Killed or frozen, be it for a while: whom the others may take for dead."""

    async def join(self, count: int = 1, *, of: PreviousVersion | None = None, **settings: str) -> list[Process]:
        """Start so many at the same time; they serve when it returns."""
        starting = [self._stack.process("runyard_workers", of=of, **settings) for _ in range(count)]
        joining = [self._exits.enter_context(process) for process in starting]
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
            dead = (worker for worker in self.workers if worker.exit_code is not None)
            return next((worker for worker in dead if worker not in self._silenced), None)

        worker: Process = await eventually(found, "worker that killed itself")
        assert worker.exit_code == -signal.SIGKILL
        self._silenced.add(worker)
        return worker

    def freeze(self, worker: Process) -> None:
        self._silenced.add(worker)
        worker.send(signal.SIGSTOP)

    def thaw(self, worker: Process) -> None:
        worker.send(signal.SIGCONT)

    async def born_again(self, worker: Process) -> None:
        """It has learnt that it was taken for dead, and has another id."""
        await eventually(lambda: len(lives(worker)) == 2, "second life")

    def burials(self) -> list[dict[str, Any]]:
        return [event for worker in self.workers for event in worker.events("worker died")]

    def held_by(self, worker: Process) -> set[str]:
        """The runs that are its own by their rows."""
        rows = self._stack.execute("SELECT id, worker_id FROM agent_runs WHERE status = 'running'")
        return {run_id for run_id, worker_id in rows if worker_id in lives(worker)}

    async def retire(self, *workers: Process) -> None:
        """Ask them to leave; they do so by themselves, and have nothing to complain of."""
        for worker in workers:
            worker.send(signal.SIGTERM)
        for worker in workers:
            assert await worker.exited() == 0
            assert worker.complaints() == []

    async def leave(self) -> None:
        """All who are left retire; looking back, nobody who lived was taken for dead."""
        await self.retire(*(worker for worker in self.workers if worker.exit_code is None))
        silenced = {life for worker in self._silenced for life in lives(worker)}
        ours = {life for worker in self.workers for life in lives(worker)}  # the dead of an earlier crew are buried too
        assert {burial["dead_worker_id"] for burial in self.burials()} & ours <= silenced
        for worker in self.workers:
            assert len(lives(worker)) == 1 or worker in self._silenced


def lives(worker: Process) -> set[str]:
    """The ids that it had: a new one after it was taken for dead."""
    return {event["worker_id"] for event in worker.events("worker registered")}


@asynccontextmanager
async def working(stack: Stack) -> AsyncIterator[Crew]:
    async with AsyncExitStack() as exits:
        crew, began_ms = Crew(stack, exits), now_ms()
        yield crew
        await assert_sound(stack, since_ms=began_ms)  # while there are workers to end what was left
        await crew.leave()
