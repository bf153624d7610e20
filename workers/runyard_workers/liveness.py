"""Whether this process may act: only while its own beat succeeds."""

import asyncio
import contextlib
import time

BEAT_LIMIT_S = 6.0
"""Without a beat for this long no model call and no tool starts. It is less than `runyard.beats.DEAD_AFTER_S`, after
which the others take the process for dead."""


class Liveness:
    """Set by the beat's thread, awaited on the event loop."""

    def __init__(self) -> None:
        self._last_beat = time.monotonic()
        self._beat = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def seen(self, sent_at: float) -> None:
        """A beat succeeded. `sent_at`: when it was sent (monotonic): the time counts from there, as for the others."""
        self._last_beat = sent_at
        with contextlib.suppress(RuntimeError):  # the loop is closed: the process ends
            self._loop.call_soon_threadsafe(self._beat.set)

    def is_alive(self) -> bool:
        return time.monotonic() - self._last_beat < BEAT_LIMIT_S

    async def wait(self) -> None:
        """Return at once while the beat is fresh, else when one succeeds."""
        while not self.is_alive():
            self._beat.clear()
            await self._beat.wait()
