"""Which workers live, for somebody who only looks: by the watcher's own clock, as workers judge each other."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from runyard.db.workers import BEAT_S, DEAD_AFTER_S
from runyard.ids import WorkerId

LOOK_S = BEAT_S
"""How often beats are to be read."""

GAP_S = 2 * BEAT_S
"""A watcher that did not look for this long cannot tell when a beat stopped."""


@dataclass(frozen=True, slots=True)
class _Seen:
    beat: int
    since: float
    has_changed: bool


class Pulse:
    """The beats that were seen, and since when each stands still. For the first 8 s a worker is assumed to live."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._seen: dict[WorkerId, _Seen] = {}
        self._looked_at = float("-inf")

    def see(self, beats: Mapping[WorkerId, int]) -> None:
        """Take in what was just read: the beats of all workers."""
        now = self._clock()
        before = self._seen if now - self._looked_at <= GAP_S else {}
        self._looked_at = now
        self._seen = {worker_id: _update(before.get(worker_id), beat, now) for worker_id, beat in beats.items()}

    def lives(self, worker_id: WorkerId) -> bool:
        seen = self._seen.get(worker_id)
        return seen is None or self._clock() - seen.since < DEAD_AFTER_S

    def is_certain(self) -> bool:
        """Whether every beat has risen since it was first seen, or has stood still for so long that its
        worker is dead.
        """
        return all(seen.has_changed or not self.lives(worker_id) for worker_id, seen in self._seen.items())


def _update(known: _Seen | None, beat: int, now: float) -> _Seen:
    if known is None:
        return _Seen(beat, now, has_changed=False)
    return known if known.beat == beat else _Seen(beat, now, has_changed=True)
