"""Which other workers are dead. Each worker watches the next ones on the ring of ids, by its own clock alone."""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from runyard.db.deaths import NEIGHBOURS
from runyard.db.workers import BEAT_S, DEAD_AFTER_S
from runyard.ids import WorkerId

CHANGED_WITHIN_S = 2 * BEAT_S
"""A row that changed within so long is alive."""

ALIVE_NEIGHBOURS = 3
"""How many living workers a watcher looks past: so many see each death, and one would be enough."""

Row = tuple[WorkerId, int]
"""A worker and its beat."""


@dataclass(frozen=True, slots=True)
class _Seen:
    beat: int
    since: float
    has_changed: bool


class Ring:
    """One watcher's view; belongs to the beat's thread.

    A reading may be slow, and a beat in it may be as old as the question or as young as the answer. So a change is
    dated by its answer and judged by a later question: a slow database can delay a death, but never cause one.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._seen: dict[WorkerId, _Seen] = {}
        self._asked_at = 0.0

    def look_around(self, rows: Iterable[Row]) -> list[Row]:
        """Read on until three living workers are passed; returns those among the passed whose beat has stood still for
        8 s.

        `rows`: the others in the ring's order, read as they are needed (`following_around`). Workers that are no longer
        passed are forgotten.
        """
        asked_at = self._clock()
        if asked_at - self._asked_at > CHANGED_WITHIN_S:
            self.forget()
        self._asked_at = asked_at
        passed = self._passed(rows)
        answered_at = self._clock()
        before, self._seen = self._seen, {}
        for worker_id, beat in passed:
            known = before.get(worker_id)
            if known is None or known.beat != beat:
                known = _Seen(beat, answered_at, has_changed=known is not None)
            self._seen[worker_id] = known
        return [
            (worker_id, seen.beat) for worker_id, seen in self._seen.items() if asked_at - seen.since >= DEAD_AFTER_S
        ]

    def forget(self) -> None:
        """This watcher was held up, or its own beat failed: what it saw before proves nothing."""
        self._seen.clear()

    def _passed(self, rows: Iterable[Row]) -> list[Row]:
        passed: list[Row] = []
        alive = 0
        for row in rows:
            passed.append(row)
            alive += self._is_alive(*row)
            if alive == ALIVE_NEIGHBOURS:
                break
        return passed

    def _is_alive(self, worker_id: WorkerId, beat: int) -> bool:
        """Only a change that was seen proves life. So the view looks past any number of dead rows, and watches them."""
        known = self._seen.get(worker_id)
        if known is None:
            return False
        return known.beat != beat or (known.has_changed and self._asked_at - known.since <= CHANGED_WITHIN_S)


def following_around(me: WorkerId, following: Callable[[str], Sequence[Row]]) -> Iterator[Row]:
    """The other workers, from one's own id on, around the ring.

    `following`: the rows that follow an id, in the order of ids: `NEIGHBOURS` of them, or all that there are.
    """
    yield from _after(me, following)
    for row in _after("", following):
        if row[0] >= me:
            return
        yield row


def _after(last: str, following: Callable[[str], Sequence[Row]]) -> Iterator[Row]:
    while True:
        rows = following(last)
        yield from rows
        if len(rows) < NEIGHBOURS:
            return
        last = rows[-1][0]
