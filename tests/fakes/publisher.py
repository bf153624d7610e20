"""A publisher that only keeps its wake-ups in a list."""

from typing import Any

from runyard.ids import InvocationId, RunId


class FakePublisher:
    def __init__(self) -> None:
        self.woken: list[tuple[RunId, InvocationId, str]] = []

    def wake(self, *, run_id: RunId, invocation_id: InvocationId, queue: str) -> None:
        self.woken.append((run_id, invocation_id, queue))

    def wake_all(self, runs: Any) -> None:
        for run in runs:
            self.wake(run_id=run.run_id, invocation_id=run.invocation_id, queue=run.queue)
