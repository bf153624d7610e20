"""The newest frames of one watched stream, encoded once for all its readers."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from runyard.errors import RunyardError
from runyard.frames import Frame
from runyard.streams.reader import StreamInfo, StreamState
from runyard_gateway.http_protocol import as_chunk
from runyard_gateway.sse import encode, fitting

WINDOW_BYTES = 1_048_576
"""Readers that are further behind read pages from Redis. Most windows are almost empty, see `Window.forget`."""

FRAME_OVERHEAD_BYTES = 64  # a bytes object and its place in a list


class Piece(NamedTuple):
    """Frames `after + 1` to `last`, encoded, of a window that reached to `tip` when they were joined."""

    after: int
    tip: int
    last: int
    body: bytes


NO_PIECE = Piece(0, 0, 0, b"")


class Reader(Protocol):
    """The part of `runyard_gateway.tail.Tail` that the window needs."""

    cursor: int

    def wake(self) -> None: ...

    def fail(self, error: RunyardError) -> None: ...

    def take(self, piece: Piece, chunk: bytes) -> bool:
        """Write the piece to the reader, if it waits at exactly this place. Returns whether that was possible."""
        ...


class Window:
    """Holds frames `start + 1` to `last` without a hole; readers fetch older ones from Redis themselves.

    Batches arrive in order, but one may be missing: then the window begins anew with the next. So a lost message costs
    each reader one read, and nobody loses a frame.
    """

    def __init__(self, stream_id: str, now_s: float) -> None:
        self.stream_id = stream_id
        self.readers: set[Reader] = set()
        self.start = 0
        self.last = 0
        self.closed = False
        self.is_subscribed = False
        """What is published reaches it, or will as soon as the subscription is made."""
        self.farewell: bytes | None = None
        """What every reader gets, whatever its cursor, and then nothing more."""
        self.notice: bytes | None = None
        """What every reader is told once, beside the frames, as long as no further frame has come."""
        self.heard_at_s = now_s
        """When a frame came last, or the watch began."""
        self.known_at_s = now_s
        """The same, or when Redis was asked last."""
        self._encoded: list[bytes] = []
        self._size_bytes = 0
        self._joined = NO_PIECE

    def absorb(self, frames: Sequence[Frame], now_s: float) -> None:
        """Add a published batch. Its frames are contiguous, and there is at least one."""
        self.heard_at_s = self.known_at_s = now_s
        self.notice = None
        first, last, had = frames[0].seq, frames[-1].seq, self.last
        if last <= self.last:
            return
        if first > self.last + 1:
            self._begin_after(first - 1)
        elif first <= self.last:
            frames = frames[self.last + 1 - first :]
        encoded = [encode(frame) for frame in frames]
        self._encoded += encoded
        self._size_bytes += _cost_bytes(encoded)
        self.last = last
        self.closed = frames[-1].is_terminal
        if self._size_bytes > WINDOW_BYTES:
            self._shrink()
        if first > had + 1 or self.closed:
            self.wake()
        else:
            self._hand_out(had)

    def learn(self, info: StreamInfo | None, now_s: float) -> None:
        """Take note of what Redis holds, so that readers find batches that were missed."""
        self.known_at_s = now_s
        if info is None:
            return
        if info.last > self.last:
            self.notice = None
            self._begin_after(info.last)
        self.closed = self.closed or info.state is StreamState.CLOSED
        self.wake()

    def after(self, cursor: int) -> Piece:
        """The frames from `cursor + 1` on, as many as one write takes; `start <= cursor < last`.

        They are joined once for all readers at the same place.
        """
        if self._joined[:2] != (cursor, self.last):
            encoded = self._encoded[cursor - self.start :]
            count = fitting(encoded)
            self._joined = Piece(cursor, self.last, cursor + count, b"".join(encoded[:count]))
        return self._joined

    def forget(self) -> None:
        """Drop what all readers have."""
        if not self._encoded:
            return
        cursor = min((reader.cursor for reader in self.readers), default=self.last)
        self._joined = NO_PIECE
        if cursor > self.start:
            self._drop(min(cursor, self.last) - self.start)

    def tell(self, notice: bytes) -> None:
        if notice != self.notice:
            self.notice = notice
            self.wake()

    def end_with(self, farewell: bytes) -> None:
        self.farewell = farewell
        self.wake()

    def fail(self, error: RunyardError) -> None:
        for reader in self.readers:
            reader.fail(error)

    def _hand_out(self, had: int) -> None:
        """Write the frames after `had` to the readers that wait there, and wake the others."""
        piece = self.after(had) if had >= self.start else NO_PIECE
        if piece.last < self.last:  # more than one write takes
            self.wake()
            return
        chunk = as_chunk(piece.body)
        for reader in self.readers:
            if not reader.take(piece, chunk):
                reader.wake()

    def _begin_after(self, seq: int) -> None:
        self._encoded.clear()
        self._size_bytes = 0
        self.start = self.last = seq

    def _shrink(self) -> None:
        """Shrink to half the limit, so that this does not happen at every frame. The newest frame is kept."""
        excess_bytes = self._size_bytes - WINDOW_BYTES // 2
        count = 0
        while excess_bytes > 0 and count < len(self._encoded) - 1:
            excess_bytes -= len(self._encoded[count]) + FRAME_OVERHEAD_BYTES
            count += 1
        self._drop(count)

    def _drop(self, count: int) -> None:
        self._size_bytes -= _cost_bytes(self._encoded[:count])
        del self._encoded[:count]
        self.start += count

    def wake(self) -> None:
        for reader in self.readers:
            reader.wake()


def _cost_bytes(encoded: Sequence[bytes]) -> int:
    return sum(map(len, encoded)) + FRAME_OVERHEAD_BYTES * len(encoded)
