"""How long a client waits before it tries again, and when it gives up."""

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable

log = logging.getLogger(__name__)

FIRST_S = 0.2
LONGEST_S = 10.0
SPREAD = 0.25
"""A wait that the server asks for is never cut short; it is made longer by up to this part, so that clients do not come
back in step."""


class Patience:
    """The patience of one call or one stream. Waits double from `FIRST_S` to `LONGEST_S`, each shortened at random by
    up to half. It ends when nothing has got through for `limit_s`; with 0, at the first failure.
    """

    def __init__(
        self,
        limit_s: float,
        *,
        now: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._limit_s = limit_s
        self._now = now
        self._sleep = sleep
        self._next_s = FIRST_S
        self._failing_since_s: float | None = None

    def eased(self) -> None:
        """All is well: the next failure counts as the first again."""
        self._next_s = FIRST_S
        self._failing_since_s = None

    def reached(self) -> None:
        """Something got through, but not much: the patience does not end now, and the waits go on growing."""
        self._failing_since_s = None

    async def wait(self, failure: Exception, *, at_least_s: float = 0.0) -> None:
        """Sleep before the next try, at least as long as the server asked for.

        Raises:
            failure: when that would be after the limit.
        """
        now_s = self._now()
        if self._failing_since_s is None:
            self._failing_since_s = now_s
        delay_s = self._drawn_s(at_least_s)
        if now_s + delay_s > self._failing_since_s + self._limit_s:
            raise failure
        log.info("%s: trying again in %.1f s", failure, delay_s)
        await self._sleep(delay_s)

    def _drawn_s(self, at_least_s: float) -> float:
        own_s, self._next_s = self._next_s, min(2 * self._next_s, LONGEST_S)
        chance = random.random()  # noqa: S311 - spreads load, guards nothing
        return max(own_s * (0.5 + chance / 2), at_least_s * (1 + SPREAD * chance))
