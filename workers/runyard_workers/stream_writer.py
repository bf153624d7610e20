"""One run's frames, from when they are written until Redis has them."""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import islice

import structlog

from runyard.frames import Payload, cost_bytes
from runyard.streams.ops import Answer, Append, Op, Open, Reset, Status, Touch

log = structlog.get_logger()


class WriterState(StrEnum):
    LIVE = "live"
    BROKEN = "broken"  # frames are lost or in doubt; `reset` makes it live again
    LOST = "lost"  # a higher generation has opened the stream: the run belongs to somebody else
    CLOSED = "closed"  # the stream has its terminal frame
    RELEASED = "released"  # by its owner


@dataclass(frozen=True, kw_only=True, slots=True)
class Parcel:
    """The operations of one writer in one script call."""

    ops: list[Op]
    size_bytes: int
    epoch: int


class StreamWriter:
    """Made by `Flusher.open`. Nothing here raises or blocks; the owner looks at `state` where it can act on it.

    Unless the writer is live, frames are numbered and dropped: after a loss the numbers go on, so that `last` stays the
    highest number that any reader may have seen. All methods belong to the event loop's thread.
    """

    def __init__(
        self,
        stream_id: str,
        generation: int,
        *,
        max_bytes: int,
        on_bytes: Callable[["StreamWriter", int], None],
        on_release: Callable[["StreamWriter"], None],
    ) -> None:
        self.stream_id = stream_id
        self.generation = generation
        self.max_bytes = max_bytes
        """How many bytes of the stream's frames Redis keeps; beyond that it drops the oldest."""
        self.state = WriterState.LIVE
        self.last = 0
        """The highest number given to a frame."""
        self.acked = 0
        """The highest number known to be in Redis."""
        self.is_made_anew = False
        """Redis did not have the stream when it was opened."""
        self.unsent_bytes = 0
        self._unsent: deque[Payload] = deque()  # numbers acked + 1 to last
        self._on_bytes = on_bytes
        self._on_release = on_release
        self._is_open = False
        self._opening: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._flushing: deque[tuple[int, asyncio.Future[bool]]] = deque()
        self._base = 0
        self._reset_count = 0  # so many of the unsent frames belong to a reset that is not answered yet
        self._touch_due = False
        self._in_doubt = False  # a call got no answer: what it carried may be stored
        self.on_forgotten: Callable[[], None] | None = None
        """Called when `is_forgotten` becomes true."""
        self._is_forgotten = False
        self._epoch = 0  # answers to what was sent before a reset tell nothing any more

    @property
    def broken(self) -> bool:
        return self.state is WriterState.BROKEN

    @property
    def is_forgotten(self) -> bool:
        """Whether it is broken since Redis, which is there, does not have frames that it had taken."""
        return self._is_forgotten and self.state is WriterState.BROKEN

    # For the run's loop -------------------------------------------------------------------------------------------

    async def opened(self, timeout_s: float = 2.0) -> int:
        """Wait until the stream is open; returns the highest number that Redis holds. Do not write to a stream that may
        hold frames before this.

        Without an answer in time the writer is broken, since it is unknown what is stored.
        """
        try:
            async with asyncio.timeout(timeout_s):
                await asyncio.shield(self._opening)
        except TimeoutError:
            self._stop(WriterState.BROKEN)
        return self.acked

    def write(self, payload: Payload) -> int:
        """Returns the frame's number."""
        self.last += 1
        if self.state is WriterState.LIVE:
            self._unsent.append(payload)
            self._count(cost_bytes(*payload))
        return self.last

    async def flush(self, timeout_s: float = 2.0) -> bool:
        """Wait until everything that was written is in Redis. False: it is not, or not yet."""
        if self.state is not WriterState.LIVE:
            return False
        if self.acked >= self.last:
            return True
        done: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._flushing.append((self.last, done))
        try:
            async with asyncio.timeout(timeout_s):
                return await done
        except TimeoutError:
            return False

    def reset(self, base: int, frames: Sequence[Payload]) -> None:
        """Begin the stream anew with `frames` (a rewind to nothing, then the committed text) from number `base` on.

        `base` is above every known number, and is committed to the invocation. A stream that is lost, closed or
        released does not change.
        """
        if self.state not in (WriterState.LIVE, WriterState.BROKEN):
            return
        self._drop()
        self._epoch += 1
        self.state = WriterState.LIVE
        self._in_doubt = False
        self._is_forgotten = False
        self.is_made_anew = False
        self._base = base
        self._reset_count = len(frames)
        self.acked = base - 1
        self.last = base - 1
        for payload in frames:
            self.write(payload)

    def release(self) -> None:
        """The run has left this process. Unsent frames are dropped, so flush before."""
        self._stop(WriterState.RELEASED)
        self._on_release(self)

    # For the flusher ----------------------------------------------------------------------------------------------

    @property
    def has_work(self) -> bool:
        return self.state is WriterState.LIVE and bool(self._unsent or self._touch_due or not self._is_open)

    def touch(self) -> None:
        self._touch_due = True

    def overflow(self) -> None:
        """The process cannot keep more for a Redis that is away or slow: the unsent frames are lost."""
        log.warning(
            "frames dropped: too many wait for redis",
            stream_id=self.stream_id,
            generation=self.generation,
            acked=self.acked,
            unsent_bytes=self.unsent_bytes,
        )
        self._stop(WriterState.BROKEN)

    def parcel(self, limit_bytes: int) -> Parcel:
        """What to send next: at least one frame, if there is one, and about `limit_bytes` at most."""
        ops: list[Op] = []
        if self._reset_count:
            frames = list(islice(self._unsent, self._reset_count))
            ops.append(Reset(stream_id=self.stream_id, generation=self.generation, base=self._base, frames=frames))
        elif not self._is_open:
            ops.append(Open(stream_id=self.stream_id, generation=self.generation))
        frames, size_bytes = self._head(self._reset_count, limit_bytes)
        if frames:
            first = self.acked + 1 + self._reset_count
            ops.append(Append(stream_id=self.stream_id, generation=self.generation, first=first, frames=frames))
        if self._touch_due:
            ops.append(Touch(stream_id=self.stream_id, generation=self.generation))
        return Parcel(ops=ops, size_bytes=size_bytes, epoch=self._epoch)

    def unanswered(self, parcel: Parcel) -> None:
        """The call failed, but it may have been executed."""
        if parcel.epoch == self._epoch:
            self._in_doubt = True

    def settle(self, parcel: Parcel, answers: Sequence[Answer]) -> None:
        for op, answer in zip(parcel.ops, answers, strict=True):
            if self.state is not WriterState.LIVE or parcel.epoch != self._epoch:
                return
            self._settle(op, answer)
        self._in_doubt = False

    def _settle(self, op: Op, answer: Answer) -> None:
        match op, answer.status:
            case _, Status.FENCED:
                log.info("stream belongs to another worker", stream_id=self.stream_id, generation=self.generation)
                self._stop(WriterState.LOST)
            case _, Status.CLOSED:
                self._stop(WriterState.CLOSED)
            case Open(), Status.OK:
                self._take_open(answer)
            case Touch(), Status.OK:
                self._touch_due = False
            case Reset(), Status.OK:
                self._is_open = True
                self._reset_count = 0
                self._advance(answer.last)
            case Append(), Status.OK:
                self._advance(answer.last)
            case Append(), Status.GAP if self._in_doubt and op.first <= answer.last <= self.last:
                self._advance(answer.last)  # the call without an answer had arrived
            case _:
                self._lose(answer)

    def _lose(self, answer: Answer) -> None:
        log.warning(
            "frames lost",
            stream_id=self.stream_id,
            generation=self.generation,
            answer=answer.status,
            stored=answer.last,
            acked=self.acked,
        )
        self._stop(WriterState.BROKEN)
        self.last = max(self.last, answer.last)
        self._is_forgotten = True
        if self.on_forgotten is not None:
            self.on_forgotten()

    def _take_open(self, answer: Answer) -> None:
        self._is_open = True
        self.is_made_anew = answer.created
        if self.last == self.acked:
            self.last = self.acked = answer.last
        if not self._opening.done():
            self._opening.set_result(None)

    def _advance(self, acked: int) -> None:
        freed_bytes = 0
        while self.acked < acked:
            freed_bytes += cost_bytes(*self._unsent.popleft())
            self.acked += 1
        self._count(-freed_bytes)
        while self._flushing and self._flushing[0][0] <= acked:
            _, done = self._flushing.popleft()
            if not done.done():
                done.set_result(True)

    def _head(self, start: int, limit_bytes: int) -> tuple[list[Payload], int]:
        if not start and self.unsent_bytes <= limit_bytes:
            return list(self._unsent), self.unsent_bytes
        frames: list[Payload] = []
        size_bytes = 0
        for payload in islice(self._unsent, start, None):
            if frames and size_bytes >= limit_bytes:
                break
            frames.append(payload)
            size_bytes += cost_bytes(*payload)
        return frames, size_bytes

    def _stop(self, state: WriterState) -> None:
        self.state = state
        self._drop()
        if not self._opening.done():
            self._opening.set_result(None)

    def _drop(self) -> None:
        self._unsent.clear()
        self._reset_count = 0
        self._count(-self.unsent_bytes)
        while self._flushing:
            _, done = self._flushing.popleft()
            if not done.done():
                done.set_result(False)

    def _count(self, delta_bytes: int) -> None:
        self.unsent_bytes += delta_bytes
        self._on_bytes(self, delta_bytes)
