"""Which Redis process holds the frames."""

import asyncio
import contextlib

from runyard.errors import StoreUnavailable
from runyard.lifecycle.closing import Frames


class FrameServer:
    """`run_id` is what it was when it was asked last, and empty while it has never answered.

    It may be older than the present one, never newer than the process that holds a frame written after it was read: a
    run that begins with an old one is only reset without need.
    """

    def __init__(self, frames: Frames) -> None:
        self._frames = frames
        self._reached = asyncio.Event()
        self.run_id = ""

    async def ask(self) -> str:
        """The present run id; another one than before means that Redis restarted and may have lost frames.

        Raises:
            StoreUnavailable: it does not answer.
        """
        self.run_id = await self._frames.server_run_id()
        return self.run_id

    async def look(self) -> None:
        """Ask, and keep the run id that is known where there is no answer."""
        with contextlib.suppress(StoreUnavailable):
            await self.ask()

    def reached(self) -> None:
        """A connection to it was made, the first one or another one: it may have restarted."""
        self._reached.set()

    async def follow(self) -> None:
        """Look after each connection, until cancelled. No answer means that the connection is made again."""
        while True:
            await self._reached.wait()
            self._reached.clear()
            await self.look()
