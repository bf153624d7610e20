"""Which Redis process holds the frames."""

import asyncio
import contextlib

from runyard.errors import StoreUnavailable
from runyard.lifecycle.closing import Frames


class FrameServer:
    """`run_id`: the run id of Redis when it was last asked; empty until it has answered once.

    It may be out of date. A run that begins with an old one is at worst reset without need: frames that are written
    after it was read are never in an older process.
    """

    def __init__(self, frames: Frames) -> None:
        self._frames = frames
        self._reached = asyncio.Event()
        self.run_id = ""

    async def ask(self) -> str:
        """Ask for the present run id. If it has changed, Redis restarted and may have lost frames.

        Raises:
            StoreUnavailable: it does not answer.
        """
        self.run_id = await self._frames.server_run_id()
        return self.run_id

    async def look(self) -> None:
        """Ask, and keep the old run id if there is no answer."""
        with contextlib.suppress(StoreUnavailable):
            await self.ask()

    def reached(self) -> None:
        """To be called after each new connection to Redis: it may have restarted."""
        self._reached.set()

    async def follow(self) -> None:
        """Ask after each connection, until cancelled. Without an answer, the next connection asks again."""
        while True:
            await self._reached.wait()
            self._reached.clear()
            await self.look()
