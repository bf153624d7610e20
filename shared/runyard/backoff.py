"""How long to wait before something that is away is tried again."""

import random


class Backoff:
    """Waits that double from `first_s` to `longest_s`.

    Each is shortened at random by up to half, so that a fleet that lost the same server does not come back in step.
    """

    def __init__(self, *, first_s: float, longest_s: float) -> None:
        self._first_s = first_s
        self._longest_s = longest_s
        self._next_s = first_s

    def next_s(self) -> float:
        """The wait before the next try, in seconds."""
        delay_s, self._next_s = self._next_s, min(2 * self._next_s, self._longest_s)
        return delay_s * random.uniform(0.5, 1.0)  # noqa: S311 - spreads load, guards nothing

    def reset(self) -> None:
        """A try succeeded: the next wait is the first again."""
        self._next_s = self._first_s
