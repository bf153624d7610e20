"""Priority classes: which of the calls that wait goes first."""

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType


class Priority(StrEnum):
    INTERACTIVE = "interactive"  # somebody waits for the answer
    BACKGROUND = "background"  # nobody does

    @classmethod
    def stored(cls, name: str) -> "Priority":
        """Of a row or a manifest: a class of a later version, whose processes run beside this one, is the first."""
        return cls(name) if name in {*cls} else cls.INTERACTIVE


PENALTY_MS: Mapping[Priority, int] = MappingProxyType({Priority.INTERACTIVE: 0, Priority.BACKGROUND: 3_600_000})
"""What is added to the time of a call when its place in the queue is made: a background call goes behind interactive
ones that come up to an hour later, and ahead of all that come after those. So it waits, but not for ever.
"""


def rank_of(priority: Priority, accepted_at: int) -> int:
    """Its place in the queue, the lowest first; epoch milliseconds."""
    return accepted_at + PENALTY_MS[priority]
