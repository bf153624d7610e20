"""Waiting for a condition without sleeping: each change wakes the waiters, and a generous timeout ends the wait."""

import asyncio
from collections.abc import Callable

GUARD_S = 30.0
"""Far beyond anything that happens on a loaded machine: only a fault reaches it."""


class Signal:
    """Wakes waiters of one event loop."""

    def __init__(self) -> None:
        self._changed = asyncio.Event()

    def notify(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def change(self) -> None:
        await self._changed.wait()

    async def until(self, holds: Callable[[], bool], story: Callable[[], str], guard_s: float = GUARD_S) -> None:
        """Return once `holds()`.

        Raises:
            TimeoutError: it did not within `guard_s`; `story()` says what is the case instead.
        """
        try:
            async with asyncio.timeout(guard_s):
                while not holds():
                    await self.change()
        except TimeoutError:
            raise TimeoutError(f"after {guard_s:g} s: {story()}") from None
