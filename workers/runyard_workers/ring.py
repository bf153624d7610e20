"""Who among the other workers is dead: each watches the next ones on the ring of ids, by its own clock alone."""

from collections.abc import Sequence
from dataclasses import dataclass

from runyard.ids import WorkerId

CHANGED_WITHIN_S = 4.0
"""A beat comes every 2 s: a row that changed within two of them is alive."""

DEAD_AFTER_S = 8.0

ALIVE_NEIGHBOURS = 3
"""How many live workers each watcher's view reaches past: so many must die at once to leave a death unseen longer."""


@dataclass(slots=True)
class _Seen:
    beat: int
    changed_at: float


class Ring:
    """Belongs to the beat's thread. A watcher that was deaf itself (no beat, no reading) judges nobody by that time."""

    def __init__(self) -> None:
        self._seen: dict[WorkerId, _Seen] = {}
        self._read_at: float | None = None

    def observe(self, rows: Sequence[tuple[WorkerId, int]], now: float) -> None:
        """Take in the rows that were read; rows no longer read are forgotten."""
        if self._read_at is not None and now - self._read_at > CHANGED_WITHIN_S:
            self._seen.clear()
        self._read_at = now
        before = self._seen
        self._seen = {}
        for worker_id, beat in rows:
            known = before.get(worker_id)
            self._seen[worker_id] = known if known and known.beat == beat else _Seen(beat, now)

    def forget(self) -> None:
        """This worker's own beat failed: what it saw before proves nothing."""
        self._seen.clear()

    def is_alive(self, worker_id: WorkerId, beat: int, now: float) -> bool:
        """Whether a row that is being read counts as one that the view may stop behind."""
        known = self._seen.get(worker_id)
        return known is not None and (known.beat != beat or now - known.changed_at <= CHANGED_WITHIN_S)

    def dead(self, now: float) -> list[tuple[WorkerId, int]]:
        """Workers whose beat has not changed for 8 s, with that beat."""
        return [
            (worker_id, seen.beat) for worker_id, seen in self._seen.items() if now - seen.changed_at >= DEAD_AFTER_S
        ]
