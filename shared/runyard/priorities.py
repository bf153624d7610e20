"""Priority classes: which of the waiting calls goes first."""

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType


class Priority(StrEnum):
    INTERACTIVE = "interactive"  # somebody waits for the answer
    BACKGROUND = "background"  # nobody does

    @classmethod
    def stored(cls, name: str) -> "Priority":
        """From a row or a manifest. A class that only a later version knows, whose processes may run beside this one,
        counts as interactive.
        """
        return cls(name) if name in {*cls} else cls.INTERACTIVE


PENALTY_MS: Mapping[Priority, int] = MappingProxyType({Priority.INTERACTIVE: 0, Priority.BACKGROUND: 3_600_000})
"""Added to a call's time to make its place in the queue: a background call goes behind interactive ones that come up to
an hour later, and ahead of all that come after those. So it waits, but not for ever."""


def rank_of(priority: Priority, accepted_at: int) -> int:
    """A call's place in the queue, in epoch milliseconds; the lowest goes first."""
    return accepted_at + PENALTY_MS[priority]
