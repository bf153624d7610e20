"""Workers' beats as a watcher sees them, by its own clock alone: clocks of two machines are never compared."""

from collections.abc import Mapping
from dataclasses import dataclass

from runyard.ids import WorkerId

BEAT_S = 2.0
"""How often a worker raises its beat."""

DEAD_AFTER_S = 8.0
"""A worker whose beat stands still for so long, by its watcher's clock, is dead."""

HELD_UP_S = 2 * BEAT_S
"""A watcher that has not looked for this long cannot tell when a beat stopped: it forgets what it saw."""


@dataclass(frozen=True, slots=True)
class SeenBeat:
    """`since`: when the watcher first saw the beat at this number, on its monotonic clock. `has_risen`: it saw the beat
    at a lower number before.
    """

    beat: int
    since: float
    has_risen: bool


def seen_again(
    before: Mapping[WorkerId, SeenBeat], beats: Mapping[WorkerId, int], at: float
) -> dict[WorkerId, SeenBeat]:
    """What the watcher knows after a look at these beats. Workers that were not looked at are forgotten."""
    seen = {}
    for worker_id, beat in beats.items():
        known = before.get(worker_id)
        if known is None or known.beat != beat:
            known = SeenBeat(beat, at, has_risen=known is not None)
        seen[worker_id] = known
    return seen
