"""A frame store in memory: the script's rules for writers, and a switch for every way in which Redis can be away."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from runyard.errors import StoreUnavailable
from runyard.frames import Frame, Payload
from runyard.streams.ops import Answer, Append, Close, Op, Open, Reset, Status, Touch


@dataclass(kw_only=True)
class StoredStream:
    generation: int
    frames: list[Frame] = field(default_factory=list)
    last: int = 0
    base: int = 0
    closed: bool = False
    touches: int = 0

    def add(self, frames: Sequence[Payload]) -> None:
        for payload in frames:
            self.last += 1
            self.frames.append(Frame(self.last, *payload))


class FakeFrameStore:
    """`calls` holds the operations of each call, unanswered ones too. While `gate` is clear a call waits in flight."""

    def __init__(self, *, retain_s: float = 3600) -> None:
        self.retain_s = retain_s
        self.max_bytes = 4_194_304
        self.streams: dict[str, StoredStream] = {}
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
        answers = [self._answer(op) for op in ops]
        if self.answers_to_lose:
            self.answers_to_lose -= 1
            raise StoreUnavailable("Redis does not answer")
        return answers

    async def next_call(self) -> list[Op]:
        """The operations of the next call that begins."""
        self.called.clear()
        await self.called.wait()
        return self.calls[-1]

    def forget(self, stream_id: str, *, last: int) -> None:
        """Redis came back from its disk without the newest frames."""
        stream = self.streams[stream_id]
        stream.frames = [frame for frame in stream.frames if frame.seq <= last]
        stream.last = last

    def texts(self, stream_id: str) -> list[tuple[int, bytes]]:
        return [(frame.seq, frame.data) for frame in self.streams[stream_id].frames]

    def _answer(self, op: Op) -> Answer:
        stream = self.streams.get(op.stream_id)
        match op:
            case Open():
                return self._open(op, stream)
            case Reset():
                return self._reset(op, stream)
            case Append() | Touch():
                return self._write(op, stream)
            case Close():
                raise AssertionError("writers do not close")

    def _open(self, op: Open, stream: StoredStream | None) -> Answer:
        if stream is None:
            self.streams[op.stream_id] = StoredStream(generation=op.generation)
            return Answer(Status.OK, 0, created=True)
        if stream.closed:
            return Answer(Status.CLOSED, stream.last)
        if op.generation < stream.generation:
            return Answer(Status.FENCED, stream.last)
        stream.generation = op.generation
        return Answer(Status.OK, stream.last)

    def _write(self, op: Append | Touch, stream: StoredStream | None) -> Answer:
        if stream is None:
            return Answer(Status.MISSING, 0)
        if stream.closed:
            return Answer(Status.CLOSED, stream.last)
        if op.generation != stream.generation:
            return Answer(Status.FENCED if op.generation < stream.generation else Status.GAP, stream.last)
        if isinstance(op, Touch):
            stream.touches += 1
        elif op.first != stream.last + 1:
            return Answer(Status.GAP, stream.last)
        else:
            stream.add(op.frames)
        return Answer(Status.OK, stream.last)

    def _reset(self, op: Reset, stream: StoredStream | None) -> Answer:
        if stream is not None:
            if stream.closed:
                return Answer(Status.CLOSED, stream.last)
            if op.generation < stream.generation:
                return Answer(Status.FENCED, stream.last)
            if (op.base, op.generation) == (stream.base, stream.generation):
                return Answer(Status.OK, stream.last)
            if op.base <= stream.last:
                return Answer(Status.GAP, stream.last)
        self.streams[op.stream_id] = StoredStream(generation=op.generation, last=op.base - 1, base=op.base)
        self.streams[op.stream_id].add(op.frames)
        return Answer(Status.OK, self.streams[op.stream_id].last)
