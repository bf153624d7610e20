"""The table of workers as a watcher reads it, and the clock that both sides share."""

from collections.abc import Collection

from runyard.db.deaths import NEIGHBOURS
from runyard.ids import WorkerId


class FakeWorkersTable:
    def __init__(self, *workers: str) -> None:
        self.now = 1000.0
        self.beats = {WorkerId(worker): 0 for worker in workers}
        self.answer_s = 0.0
        """How long the database takes for each reading."""
        self.readings = 0

    def clock(self) -> float:
        return self.now

    def beat(self, workers: Collection[str]) -> None:
        for worker in workers:
            self.beats[WorkerId(worker)] += 1

    def following(self, after: str) -> list[tuple[WorkerId, int]]:
        self.readings += 1
        self.now += self.answer_s
        return sorted((worker, beat) for worker, beat in self.beats.items() if worker > after)[:NEIGHBOURS]
