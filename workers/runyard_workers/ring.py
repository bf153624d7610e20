"""Which other workers are dead. Each worker watches the next ones on the ring of ids, by its own clock alone."""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence

from runyard.beats import BEAT_S, DEAD_AFTER_S, HELD_UP_S, SeenBeat, seen_again
from runyard.db.deaths import NEIGHBOURS
from runyard.ids import WorkerId

CHANGED_WITHIN_S = 2 * BEAT_S
"""A worker whose beat has risen within this time is alive."""

ALIVE_NEIGHBOURS = 3
"""How many living workers a watcher passes. So three watchers see each death, where one would be enough."""

Row = tuple[WorkerId, int]
"""A worker and its beat."""


class Ring:
    """One watcher's view; belongs to the beat's thread.

    The database may be slow: a beat that was read may be as old as the question or as young as the answer. So a beat
    counts from the time of the answer, and is judged at the time of a later question. A slow database can delay a
    death, but never cause one.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._seen: dict[WorkerId, SeenBeat] = {}
        self._asked_at = 0.0

    def look_around(self, rows: Iterable[Row]) -> list[Row]:
        """Walk along the ring until three living workers are passed. Returns the passed ones that are dead.

        `rows`: the other workers in the ring's order, read only as far as they are needed (`following_around`). Workers
        that are no longer passed are forgotten.
        """
        asked_at = self._clock()
        if asked_at - self._asked_at > HELD_UP_S:
            self.forget()
        self._asked_at = asked_at
        passed = self._passed(rows)
        self._seen = seen_again(self._seen, dict(passed), self._clock())
        return [
            (worker_id, seen.beat) for worker_id, seen in self._seen.items() if asked_at - seen.since >= DEAD_AFTER_S
        ]

    def forget(self) -> None:
        """Forget everything: this watcher was held up, or its own beat failed, so what it saw proves nothing."""
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
        """Only a beat that was seen to rise proves life. So the walk passes any number of dead workers."""
        known = self._seen.get(worker_id)
        if known is None:
            return False
        return known.beat != beat or (known.has_risen and self._asked_at - known.since <= CHANGED_WITHIN_S)


def following_around(me: WorkerId, following: Callable[[str], Sequence[Row]]) -> Iterator[Row]:
    """The other workers around the ring, beginning after one's own id.

    `following`: reads the next `NEIGHBOURS` rows after an id, or all if there are fewer.
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
