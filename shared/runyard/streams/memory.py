"""Frames in this process's memory, under the rules of the script that runs in Redis, for tests without a service.

Time does not pass: nothing expires. In everything else one suite of tests holds it and Redis to the same behaviour
(`tests/contract/streams/test_frames.py`).
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Collection, Sequence
from dataclasses import dataclass, field

from runyard.frames import Frame, Payload, cost_bytes
from runyard.streams.ops import Answer, Append, Close, Op, Open, Reset, Status, Touch
from runyard.streams.reader import PAGE, StreamInfo, StreamState


@dataclass(kw_only=True, slots=True)
class StoredStream:
    generation: int
    base: int = 0
    last: int = 0
    is_closed: bool = False
    frames: deque[Frame] = field(default_factory=deque)
    size_bytes: int = 0

    @property
    def first(self) -> int:
        return self.frames[0].seq if self.frames else self.last + 1

    def add(self, frames: Sequence[Payload]) -> None:
        for payload in frames:
            self.last += 1
            self.frames.append(Frame(self.last, *payload))
            self.size_bytes += cost_bytes(*payload)

    def evict(self, max_bytes: int) -> None:
        """Drop the oldest frames beyond the budget, never the newest."""
        while self.size_bytes > max_bytes and len(self.frames) > 1:
            dropped = self.frames.popleft()
            self.size_bytes -= cost_bytes(dropped.event, dropped.data)

    def barred(self, generation: int) -> Answer | None:
        """Why a writer of this generation may not touch the stream; None: it may."""
        if self.is_closed:
            return Answer(Status.CLOSED, self.last)
        return Answer(Status.FENCED, self.last) if generation < self.generation else None


class MemoryFrames:
    """Like `runyard.streams.store.FrameStore`, for the tasks of one event loop."""

    def __init__(
        self, *, retain_s: float = 3600, max_bytes: int = 4_194_304, max_streams: int = 20_000, run_id: str = "memory"
    ) -> None:
        self.retain_s = retain_s
        self.max_bytes = max_bytes
        self.streams: dict[str, StoredStream] = {}
        self._max_streams = max_streams
        self._finished: dict[str, None] = {}  # in the order in which they were closed
        self._run_id = run_id
        self._grown = asyncio.Event()

    async def server_run_id(self) -> str:
        return self._run_id

    async def apply(self, ops: Sequence[Op]) -> list[Answer]:
        """In order, one answer each."""
        answers = [self._answer(op) for op in ops]
        grown, self._grown = self._grown, asyncio.Event()
        grown.set()
        return answers

    async def close(self, close: Close) -> Answer:
        (answer,) = await self.apply([close])
        return answer

    async def forget(self, stream_ids: Sequence[str]) -> None:
        for stream_id in stream_ids:
            self.streams.pop(stream_id, None)
            self._finished.pop(stream_id, None)

    async def read(self, stream_id: str, after: int, count: int = PAGE) -> list[Frame]:
        """The next frames, `count` at most, with numbers above `after`; empty: none is stored."""
        stream = self.streams.get(stream_id)
        return [] if stream is None else [frame for frame in stream.frames if frame.seq > after][:count]

    async def follow(self, stream_id: str, after: int = 0) -> AsyncIterator[Frame]:
        """Frames as they come, up to the terminal one."""
        while True:
            grown = self._grown
            for frame in await self.read(stream_id, after):
                yield frame
                after = frame.seq
                if frame.is_terminal:
                    return
            await grown.wait()

    async def info(self, stream_id: str) -> StreamInfo | None:
        return (await self.infos([stream_id])).get(stream_id)

    async def look(self, stream_id: str, after: int, count: int = PAGE) -> tuple[StreamInfo | None, list[Frame]]:
        return await self.info(stream_id), await self.read(stream_id, after, count)

    async def infos(self, stream_ids: Collection[str]) -> dict[str, StreamInfo]:
        return {stream_id: _info(self.streams[stream_id]) for stream_id in stream_ids if stream_id in self.streams}

    def _answer(self, op: Op) -> Answer:
        stream = self.streams.get(op.stream_id)
        match op:
            case Open():
                return self._open(op, stream)
            case Append() | Touch():
                return self._write(op, stream)
            case Reset():
                return self._reset(op, stream)
            case Close():
                return self._close(op, stream)

    def _fresh(self, stream_id: str, *, generation: int, base: int = 0) -> StoredStream:
        self.streams[stream_id] = StoredStream(generation=generation, base=base, last=max(base - 1, 0))
        return self.streams[stream_id]

    def _open(self, op: Open, stream: StoredStream | None) -> Answer:
        if stream is None:
            self._fresh(op.stream_id, generation=op.generation)
            return Answer(Status.OK, 0, created=True)
        if barred := stream.barred(op.generation):
            return barred
        stream.generation = op.generation
        return Answer(Status.OK, stream.last)

    def _write(self, op: Append | Touch, stream: StoredStream | None) -> Answer:
        if stream is None:
            return Answer(Status.MISSING, 0)
        if barred := stream.barred(op.generation):
            return barred
        if op.generation > stream.generation or (isinstance(op, Append) and op.first != stream.last + 1):
            return Answer(Status.GAP, stream.last)
        if isinstance(op, Append):
            stream.add(op.frames)
            stream.evict(self.max_bytes)
        return Answer(Status.OK, stream.last)

    def _reset(self, op: Reset, stream: StoredStream | None) -> Answer:
        if stream is not None:
            if barred := stream.barred(op.generation):
                return barred
            if (op.base, op.generation) == (stream.base, stream.generation):
                return Answer(Status.OK, stream.last)
            if op.base <= stream.last:
                return Answer(Status.GAP, stream.last)
        stream = self._fresh(op.stream_id, generation=op.generation, base=op.base)
        stream.add(op.frames)
        stream.evict(self.max_bytes)
        return Answer(Status.OK, stream.last)

    def _close(self, op: Close, stream: StoredStream | None) -> Answer:
        if stream is not None and stream.is_closed:
            return Answer(Status.CLOSED, stream.last)
        last = 0 if stream is None else stream.last
        if op.base > 0 and (stream is None or stream.base < op.base):
            if op.base <= last:
                return Answer(Status.BELOW, last)
            stream = self._fresh(op.stream_id, generation=0 if stream is None else stream.generation, base=op.base)
            stream.add(op.base_frames)
        elif last < op.settled_last:
            return Answer(Status.BELOW, last)
        elif stream is None:
            stream = self._fresh(op.stream_id, generation=0)
        elif last > op.settled_last and op.rewind is not None:
            stream.add([op.rewind])
        stream.add(op.frames)
        stream.evict(self.max_bytes)
        stream.is_closed = True
        self._finish(op.stream_id)
        return Answer(Status.OK, stream.last)

    def _finish(self, stream_id: str) -> None:
        self._finished[stream_id] = None
        while len(self._finished) > self._max_streams:
            oldest = next(iter(self._finished))
            del self._finished[oldest]
            del self.streams[oldest]


def _info(stream: StoredStream) -> StreamInfo:
    state = StreamState.CLOSED if stream.is_closed else StreamState.LIVE
    return StreamInfo(state, stream.first, stream.last, stream.base, stream.generation)
