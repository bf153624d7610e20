"""The frame store in memory, with a switch for every way in which Redis can be away."""

import asyncio
from collections import deque
from collections.abc import Sequence

from runyard.errors import StoreUnavailable
from runyard.streams.memory import MemoryFrames
from runyard.streams.ops import Answer, Op


class FaultyFrames(MemoryFrames):
    """`calls` holds the operations of each call, unanswered ones too. While `gate` is clear a call waits in flight."""

    def __init__(self, *, retain_s: float = 3600) -> None:
        super().__init__(retain_s=retain_s)
        self.calls: list[list[Op]] = []
        self.called = asyncio.Event()
        self.gate = asyncio.Event()
        self.gate.set()
        self.away = False
        self.answers_to_lose = 0
        """So many calls are executed, and their answers do not arrive."""

    async def apply(self, ops: Sequence[Op]) -> list[Answer]:
        self.calls.append(list(ops))
        self.called.set()
        await asyncio.sleep(0)
        await self.gate.wait()
        if self.away:
            raise StoreUnavailable("Redis does not answer")
        answers = await super().apply(ops)
        if self.answers_to_lose:
            self.answers_to_lose -= 1
            raise StoreUnavailable("Redis does not answer")
        return answers

    async def next_call(self) -> list[Op]:
        """The operations of the next call that begins."""
        self.called.clear()
        await self.called.wait()
        return self.calls[-1]

    def lose(self, stream_id: str, *, last: int) -> None:
        """Redis came back from its disk without the newest frames."""
        stream = self.streams[stream_id]
        stream.frames = deque(frame for frame in stream.frames if frame.seq <= last)
        stream.last = last

    def texts(self, stream_id: str) -> list[tuple[int, bytes]]:
        return [(frame.seq, frame.data) for frame in self.streams[stream_id].frames]
