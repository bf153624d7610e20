"""A model of runs, their inputs and their workers without a database: it predicts the outcome of each call.

The model knows no rows, locks or transactions; `test_lifecycle.py` holds them against it.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from runyard.priorities import Priority
from runyard.runs import BUSY, RunStatus

IfBusy = Literal["steer", "reject", "cancel"]
Outcome = tuple[Any, ...]
"""What a call says, its kind first; a refusal is `("refused", why)` and changes nothing."""


@dataclass(kw_only=True)
class Input:
    id: str
    invocation: str
    opens: bool
    rank: int
    folded: bool = False


@dataclass(kw_only=True)
class Invocation:
    ended: RunStatus | None = None
    has_begun: bool = False
    deaths: list[list[str]] = field(default_factory=list)
    unanswered: list[str] = field(default_factory=list)


@dataclass(kw_only=True)
class Run:
    """`inputs`: all that were neither dropped nor taken back; `started`: tools whose calls are under way."""

    id: str
    current: str
    rank: int
    priority: Priority
    status: RunStatus = RunStatus.QUEUED
    worker: str | None = None
    generation: int = 0
    is_cancelled: bool = False
    invocations: dict[str, Invocation] = field(default_factory=dict)
    inputs: list[Input] = field(default_factory=list)
    started: dict[int, str] = field(default_factory=dict)

    @property
    def waiting(self) -> list[Input]:
        return [item for item in self.inputs if not item.folded]

    @property
    def steering(self) -> list[Input]:
        """What waits and steers what runs, or what opens it."""
        return [item for item in self.waiting if item.invocation == self.current]

    @property
    def replacement(self) -> Input | None:
        return next((item for item in self.waiting if item.opens and item.invocation != self.current), None)

    def due(self) -> Iterator[Input]:
        """What the current invocation answers: its own inputs, and what earlier ones left."""
        for item in self.waiting:
            if item.invocation == self.current or self.invocations[item.invocation].ended is not None:
                yield item

    def fold(self, items: Any) -> None:
        for item in list(items):
            item.folded = True

    def drop(self, items: list[Input]) -> list[str]:
        self.inputs = [item for item in self.inputs if item not in items]
        return [item.id for item in items]

    def enqueue(self, opening: Input, priority: Priority) -> None:
        self.priority = priority
        self.invocations[opening.invocation] = Invocation()
        self.inputs.append(opening)

    def begin(self, opening: Input) -> None:
        self.current, self.rank = opening.invocation, opening.rank
        self.status, self.is_cancelled = RunStatus.QUEUED, False

    def end(self, status: RunStatus) -> None:
        """The current invocation ends; one that waits to take its place is next."""
        self.invocations[self.current].ended = status
        self.status, self.worker, self.is_cancelled = status, None, False
        self.started.clear()
        if (following := self.replacement) is not None:
            self.begin(following)

    def leave(self) -> None:
        """It goes back into the queue."""
        self.status, self.worker = RunStatus.QUEUED, None
        self.generation += 1


@dataclass(kw_only=True)
class Model:
    runs: dict[str, Run] = field(default_factory=dict)
    workers: set[str] = field(default_factory=set)

    # Callers ----------------------------------------------------------------------------------------------------

    def send(self, run_id: str, opening: Input, priority: Priority, if_busy: IfBusy) -> Outcome:
        """`opening`: what the call says, where it begins an invocation."""
        run = self.runs.get(run_id)
        if run is None:
            run = self.runs[run_id] = Run(id=run_id, current=opening.invocation, rank=opening.rank, priority=priority)
        elif run.status in BUSY:
            return self._send_busy(run, opening, priority, if_busy)
        run.enqueue(opening, priority)
        run.begin(opening)
        return ("accepted", opening.invocation)

    def _send_busy(self, run: Run, opening: Input, priority: Priority, if_busy: IfBusy) -> Outcome:
        following = run.replacement
        if if_busy == "reject" or (if_busy == "cancel" and following is not None):
            return ("refused", "RUN_BUSY")
        if if_busy == "cancel" and run.status is RunStatus.QUEUED:
            run.fold(run.due())
            run.end(RunStatus.CANCELLED)
            run.enqueue(opening, priority)
            run.begin(opening)
            return ("accepted", opening.invocation)
        if if_busy == "cancel" or (run.is_cancelled and following is None):
            run.is_cancelled = True
            run.enqueue(opening, priority)
            return ("accepted next", opening.invocation)
        target = following.invocation if run.is_cancelled and following is not None else run.current
        run.inputs.append(replace(opening, invocation=target, opens=False))
        return ("steers", target)

    def send_again(self, run_id: str, invocation: str, input_id: str) -> Outcome:
        """The answer to the first try was lost."""
        run = self.runs[run_id]
        found = next(item for item in run.inputs if item.id == input_id)
        if found.invocation != invocation:
            return ("steers", found.invocation)
        is_next = run.status in BUSY and run.current != invocation
        return ("accepted next" if is_next else "accepted", invocation)

    def retract(self, run_id: str, input_id: str) -> Outcome:
        run = self.runs[run_id]
        found = next((item for item in run.inputs if item.id == input_id), None)
        if found is None:
            return ("refused", "unknown")
        if found.folded or found.opens:
            return ("refused", "ALREADY_FOLDED")
        run.drop([found])
        return ("retracted", input_id)

    def cancel(self, run_id: str, named: str | None) -> Outcome:
        run = self.runs[run_id]
        if named not in {None, run.current}:
            return self._cancel_other(run, run.invocations[named])
        if run.status is RunStatus.RUNNING:
            run.is_cancelled = True
            return ("asked",)
        if run.status is RunStatus.QUEUED:
            dropped = run.drop([item for item in run.steering if not item.opens])
            run.fold(run.due())
            run.end(RunStatus.CANCELLED)
            return ("cancelled", *dropped)
        return ("settled", run.status, *run.drop(run.waiting))

    def _cancel_other(self, run: Run, named: Invocation) -> Outcome:
        """It is over, or waits to take the place of the one that the run is at."""
        if named.ended is not None:
            return ("settled", named.ended)
        named.ended = RunStatus.CANCELLED
        return ("cancelled", *run.drop([item for item in run.waiting if run.invocations[item.invocation] is named]))

    # The fleet --------------------------------------------------------------------------------------------------

    def claim(self, worker: str, running_max: int | None) -> Outcome:
        """All runs are of one user."""
        queued = [run for run in self.runs.values() if run.status is RunStatus.QUEUED]
        running = sum(run.status is RunStatus.RUNNING for run in self.runs.values())
        if not queued or (running_max is not None and running >= running_max):
            return ("nothing queued",)
        if worker not in self.workers:
            return ("refused", "worker gone")
        run = min(queued, key=lambda each: (each.rank, each.id))
        invocation = run.invocations[run.current]
        if not invocation.has_begun:
            run.fold(run.due())
        invocation.has_begun = True
        run.status, run.worker = RunStatus.RUNNING, worker
        run.generation += 1
        return ("claimed", run.id, run.generation)

    def bury(self, worker: str) -> Outcome:
        if worker not in self.workers:
            return ("refused", "not that beat")
        self.workers.discard(worker)
        theirs = [run for run in self.runs.values() if run.worker == worker]
        for run in theirs:
            run.invocations[run.current].deaths.append(sorted(set(run.started.values())))
            run.leave()
        return ("buried", *sorted(run.id for run in theirs))

    # A worker, with the generation that it claimed --------------------------------------------------------------

    def held(self, run_id: str, generation: int) -> Run | None:
        """None: the run is not this claim's any more."""
        run = self.runs[run_id]
        return run if run.status is RunStatus.RUNNING and run.generation == generation else None

    def start(self, run: Run, index: int, tool: str) -> Outcome:
        run.started[index] = tool
        return ("done",)

    def finish(self, run: Run, index: int) -> Outcome:
        del run.started[index]
        return ("done",)

    def answer(self, run: Run) -> Outcome:
        """The tool boundary."""
        run.started.clear()
        run.fold(run.steering)
        return ("goes on", run.is_cancelled)

    def end(self, run: Run) -> Outcome:
        """The terminal boundary."""
        steering = run.steering
        run.fold(steering)
        if steering and not run.is_cancelled:
            return ("goes on", False)
        return self._settle(run, RunStatus.CANCELLED if run.is_cancelled else RunStatus.COMPLETED)

    def fail(self, run: Run) -> Outcome:
        if run.is_cancelled:
            run.fold(run.steering)
            return self._settle(run, RunStatus.CANCELLED)
        run.invocations[run.current].unanswered = [item.id for item in run.steering]
        return self._settle(run, RunStatus.FAILED)

    def _settle(self, run: Run, status: RunStatus) -> Outcome:
        run.end(status)
        return ("settled", status, run.current if run.status is RunStatus.QUEUED else None)

    def give_back(self, run: Run) -> Outcome:
        run.leave()
        return ("given back",)
