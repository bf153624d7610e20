"""A worker of a harness; and the worker and the run to which a task or a thread belongs."""

from contextvars import ContextVar, copy_context
from dataclasses import dataclass

from runyard.db.claims import Claim
from runyard.ids import RunId, WorkerId
from runyard_workers.runner import Runner
from runyard_workers.slots import SlotPool


@dataclass(kw_only=True, eq=False)
class Worker:
    """What each worker has for itself. All workers of a harness share the rest (`Services`)."""

    id: WorkerId
    runner: Runner
    slots: SlotPool
    is_leaving: bool = False
    is_dead: bool = False

    def start(self, claim: Claim) -> None:
        """Execute a claimed run. Its tasks and threads know that they belong to this worker and run."""
        assert self.slots.reserve(0), "a harness has slots for all runs of a test"
        copy_context().run(self._start, claim)

    def _start(self, claim: Claim) -> None:
        _current.set((self, claim.run.id))
        self.runner.start(claim)


_current: ContextVar[tuple[Worker, RunId]] = ContextVar("runyard.testing.current")


def current_worker() -> Worker:
    return _current.get()[0]


def current_run() -> RunId:
    return _current.get()[1]


def is_current() -> bool:
    """Whether the caller is a run's own code: a tool, or the model's script."""
    return _current.get(None) is not None
