"""How long a client waits before it tries again, and when it gives up."""

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable

from runyard.backoff import Backoff

log = logging.getLogger(__name__)

FIRST_S = 0.2
LONGEST_S = 10.0
SPREAD = 0.25
"""A wait that the server asks for is never cut short; it is made longer by up to this part, so that clients do not come
back in step."""


class Patience:
    """The patience of one call or one stream: it waits as `Backoff` says, from `FIRST_S` to `LONGEST_S`. It ends when
    nothing has got through for `limit_s`; with 0, at the first failure.
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
        self._backoff = Backoff(first_s=FIRST_S, longest_s=LONGEST_S)
        self._failing_since_s: float | None = None

    def eased(self) -> None:
        """All is well: the next failure counts as the first again."""
        self._backoff.reset()
        self._failing_since_s = None

    def reached(self) -> None:
        """Something got through, but little: the limit starts again, and the waits keep growing."""
        self._failing_since_s = None

    async def wait(self, failure: Exception, *, at_least_s: float = 0.0) -> None:
        """Sleep before the next try, at least as long as the server asked for.

        Raises:
            failure: when that would be after the limit.
        """
        now_s = self._now()
        if self._failing_since_s is None:
            self._failing_since_s = now_s
        asked_s = at_least_s * random.uniform(1, 1 + SPREAD)  # noqa: S311 - spreads load, guards nothing
        delay_s = max(self._backoff.next_s(), asked_s)
        if now_s + delay_s > self._failing_since_s + self._limit_s:
            raise failure
        log.info("%s: trying again in %.1f s", failure, delay_s)
        await self._sleep(delay_s)
