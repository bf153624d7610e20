"""Which workers live, for the gateway and the command, which only look: judged as workers judge each other."""

import time
from collections.abc import Callable, Mapping

from runyard.beats import BEAT_S, DEAD_AFTER_S, HELD_UP_S, SeenBeat, seen_again
from runyard.ids import WorkerId

LOOK_S = BEAT_S
"""How often beats are to be read."""


class Pulse:
    """The beats of all workers. For its first 8 s a worker counts as living."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._seen: dict[WorkerId, SeenBeat] = {}
        self._looked_at = float("-inf")

    def see(self, beats: Mapping[WorkerId, int]) -> None:
        """Take in the beats of all workers, as they were just read."""
        now = self._clock()
        before = self._seen if now - self._looked_at <= HELD_UP_S else {}
        self._looked_at = now
        self._seen = seen_again(before, beats, now)

    def lives(self, worker_id: WorkerId) -> bool:
        seen = self._seen.get(worker_id)
        return seen is None or self._clock() - seen.since < DEAD_AFTER_S

    def is_certain(self) -> bool:
        """Whether each worker is known to live, because its beat has risen, or to be dead."""
        return all(seen.has_risen or not self.lives(worker_id) for worker_id, seen in self._seen.items())
