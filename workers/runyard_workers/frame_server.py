"""Which Redis process holds the frames."""

from runyard.lifecycle.closing import Frames


class FrameServer:
    """`run_id` is what it was when it was asked last."""

    def __init__(self, frames: Frames) -> None:
        self._frames = frames
        self.run_id = ""

    async def ask(self) -> str:
        """The present run id; another one than before means that Redis restarted and may have lost frames.

        Raises:
            StoreUnavailable: it does not answer.
        """
        self.run_id = await self._frames.server_run_id()
        return self.run_id
