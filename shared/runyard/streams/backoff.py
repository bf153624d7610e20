"""How long to wait before Redis is tried again."""

import random

FIRST_S = 0.05
LONGEST_S = 1.0


class Backoff:
    """Doubles from `FIRST_S` to `LONGEST_S`; jittered, so that a fleet does not come back in step."""

    def __init__(self) -> None:
        self._next_s = FIRST_S

    def next_s(self) -> float:
        delay_s, self._next_s = self._next_s, min(2 * self._next_s, LONGEST_S)
        return delay_s * random.uniform(0.5, 1.0)  # noqa: S311 - spreads load, guards nothing

    def reset(self) -> None:
        self._next_s = FIRST_S
