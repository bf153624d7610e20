"""How often, and after which waits, a model is called again within a step."""

import random
from dataclasses import dataclass

from runyard.errors import RunError


@dataclass(frozen=True, kw_only=True, slots=True)
class RetryPolicy:
    """`waits_max_s` bounds the sum of one model's waits, including those that its provider asks for.

    How long an attempt itself may take is bounded by silence (`turn.DEAD_AFTER_S`, the agent's `timeout_s`) and not
    here: an answer that was cut after minutes deserves a second attempt.
    """

    attempts: int = 4
    first_wait_s: float = 0.5
    longest_wait_s: float = 8.0
    waits_max_s: float = 120.0

    def wait_s(self, error: RunError, *, attempt: int, waited_s: float) -> float | None:
        """Seconds until the next attempt, after so many; None: this model gets no other.

        The wait that a provider asks for is kept and lengthened by ours, so that a fleet that was told the same does
        not come back at once.
        """
        if not error.retryable or attempt >= self.attempts:
            return None
        own_s = min(self.first_wait_s * 2 ** (attempt - 1), self.longest_wait_s)
        wait_s: float = error.fields.get("retry_after_s", 0.0) + own_s * random.uniform(0.5, 1.0)  # noqa: S311 - jitter
        return wait_s if waited_s + wait_s <= self.waits_max_s else None
