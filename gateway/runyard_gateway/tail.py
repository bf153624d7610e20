"""One reader's place in one stream. The reader pulls the frames after its cursor; only the cursor is kept for it."""

import asyncio
import time
from collections.abc import Callable
from enum import StrEnum
from typing import Protocol, Self

from runyard.errors import RunyardError, StoreUnavailable, StreamGone
from runyard.frames import Frame
from runyard.streams.reader import PAGE, FrameReader, StreamState
from runyard_gateway.auth.principal import Credential
from runyard_gateway.http_protocol import Link
from runyard_gateway.sse import Chunk, encode, fitting
from runyard_gateway.window import Piece, Window

RETRY_S = 0.5
"""Between two reads of frames that should be there but are not, or could not be read."""


class Position(StrEnum):
    READABLE = "readable"  # frames follow, or may follow
    ENDED = "ended"  # the stream is closed and the cursor at its tip or beyond: nothing will ever follow
    ABSENT = "absent"  # Redis does not have the stream, or not its end, or does not answer


class Station(Protocol):
    """The part of `runyard_gateway.hub.Hub` that a tail needs."""

    draining: bool

    def heed(self, window: Window) -> None:
        """Subscribe to what is published; may be called again. Stored frames can be read without it."""
        ...

    def leave(self, window: Window, tail: "Tail") -> None: ...


class Tail:
    """Made by `Hub.watch`. Its block ends without an await, so whatever ends the reader, nothing is left behind.

    Only one task pulls at a time; any task of the loop may call `wake`, `fail` and `interrupt`.
    """

    __slots__ = (
        "_deadline_s",
        "_failure",
        "_found",
        "_interrupted",
        "_link",
        "_noticed",
        "_page",
        "_reader",
        "_station",
        "_take_back",
        "_timeout_s",
        "_timer",
        "_timer_at_s",
        "_waiting",
        "_window",
        "cursor",
    )

    def __init__(self, window: Window, reader: FrameReader, station: Station) -> None:
        self.cursor = 0
        self._window = window
        self._reader = reader
        self._station = station
        self._take_back: Callable[[], None] | None = None
        self._noticed: bytes | None = None
        self._interrupted = False
        self._failure: RunyardError | None = None
        self._link: Link | None = None
        self._page = PAGE
        self._found: list[Frame] | None = None
        self._waiting: asyncio.Future[None] | None = None
        self._timeout_s = 0.0
        self._deadline_s = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at_s = 0.0

    async def seek(self, cursor: int) -> Position:
        """What to expect after `cursor`, before an answer begins. What there is of it comes along.

        Raises:
            StreamGone: frames after it were dropped; `oldestSeq` is the oldest one kept.
        """
        try:
            info, self._found = await self._reader.look(self._window.stream_id, cursor)
        except StoreUnavailable:
            return Position.ABSENT
        if info is None:
            return Position.ABSENT
        if info.state is StreamState.LIVE:
            self._station.heed(self._window)
        elif cursor >= info.last:
            return Position.ENDED
        elif not self._found:
            return Position.ABSENT
        if info.has_lost(cursor):
            raise _gone(info.first)
        # what is stored can be read at once, while the subscription is still on its way
        self._window.learn(info, time.monotonic())
        return Position.READABLE

    async def pull(self, cursor: int, timeout_s: float) -> Chunk:
        """What is pending after `cursor`, as much as one write takes; waits for the first of it.

        An empty chunk that has not `ended` means that nothing came for `timeout_s`. With a cursor beyond the tip it
        waits until the stream gets there or closes. While Redis is away, or has lost the stream, nothing comes.

        Raises:
            StreamGone: this reader fell behind what is kept.
            RunyardError: what `fail` was given.
        """
        loop = asyncio.get_running_loop()
        self.cursor = cursor
        self._timeout_s = timeout_s
        self._deadline_s = loop.time() + timeout_s
        while True:
            cursor = self.cursor  # what was written past this call is behind the reader
            if self._failure is not None:
                raise self._failure
            if self._interrupted or self._station.draining:
                return Chunk(b"", cursor, ended=True)
            behind = cursor < self._window.start and self._window.farewell is None
            found, self._found = self._found, None
            chunk = await self._read_back(cursor, found) if behind else self._pending(cursor)
            if chunk is not None:
                return chunk
            if loop.time() >= self._deadline_s:
                return Chunk(b"", cursor, ended=False)
            await self._wait(RETRY_S if behind else None)

    def write_by(self, link: Link) -> None:
        """From now on, write directly to a reader that waits as soon as something is published. What cannot be written
        then, `pull` returns.
        """
        self._link = link

    def take(self, piece: Piece, chunk: bytes) -> bool:
        """Called by the window: see `window.Reader`."""
        waiting = self._waiting
        if self._link is None or waiting is None or waiting.done() or self.cursor != piece.after:
            return False
        if not self._link.write_chunk(chunk):
            return False
        self.cursor = piece.last
        self._deadline_s = waiting.get_loop().time() + self._timeout_s
        return True

    def interrupt(self) -> None:
        """Let every pull end at once from now on, since the reader has left."""
        self._interrupted = True
        self.wake()

    def fail(self, error: RunyardError) -> None:
        """Let every pull raise this error from now on, since the reader may not read on."""
        self._failure = error
        self.wake()

    def wake(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    def bound_to(self, credential: Credential) -> Self:
        """Fail when the reader's credential ends. The reader may come back with a new one."""
        self._take_back = credential.on_end(self.fail)
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.interrupt()
        if self._timer is not None:
            self._timer.cancel()
        if self._take_back is not None:
            self._take_back()
        self._station.leave(self._window, self)

    def _pending(self, cursor: int) -> Chunk | None:
        window = self._window
        if window.farewell is not None:
            return Chunk(window.farewell, cursor, ended=True)
        if cursor < window.last:
            piece = window.after(cursor)
            return Chunk(piece.body, piece.last, ended=window.closed and piece.last == window.last)
        if window.closed:
            return Chunk(b"", cursor, ended=True)
        if window.notice is not self._noticed:
            self._noticed = window.notice
            return None if window.notice is None else Chunk(window.notice, cursor, ended=False)
        return None

    async def _read_back(self, cursor: int, frames: list[Frame] | None) -> Chunk | None:
        """`frames`: what has been read already, if anything was."""
        try:
            if not frames or frames[0].seq != cursor + 1:
                frames = await self._reader.read(self._window.stream_id, cursor, self._page)
            if frames and frames[0].seq == cursor + 1:
                return self._chunk(frames)
            info, frames = await self._reader.look(self._window.stream_id, cursor, self._page)
        except StoreUnavailable:
            return None
        if info is not None and info.has_lost(cursor):
            raise _gone(info.first)
        if frames and info is not None and frames[0].seq in {cursor + 1, info.base}:
            return self._chunk(frames)
        return None  # nothing yet; or the stream was lost or begun anew between the two, and is read again

    def _chunk(self, frames: list[Frame]) -> Chunk:
        """As many frames as one write takes. The rest is kept if it fits into the next write. If not, it was read in
        vain, and the next page is smaller.
        """
        encoded = [encode(frame) for frame in frames]
        count = fitting(encoded)
        rest = encoded[count:]
        self._found = frames[count:] if rest and fitting(rest) == len(rest) else None
        self._page = count if rest and self._found is None else min(2 * self._page, PAGE)
        last = frames[count - 1]
        return Chunk(b"".join(encoded[:count]), last.seq, ended=last.is_terminal)

    async def _wait(self, at_most_s: float | None) -> None:
        self._station.heed(self._window)
        loop = asyncio.get_running_loop()
        self._waiting = loop.create_future()
        if self._timer is None or self._timer_at_s > self._deadline_s:
            self._start_timer()
        try:
            if at_most_s is None:
                await self._waiting
            else:
                await asyncio.wait([self._waiting], timeout=at_most_s)
        finally:
            self._waiting = None

    def _on_timer(self) -> None:
        self._timer = None
        if asyncio.get_running_loop().time() < self._deadline_s:
            self._start_timer()
        else:
            self.wake()

    def _start_timer(self) -> None:
        # One timer for many pulls: it moves on when it fires and finds that the deadline has.
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at_s = self._deadline_s
        self._timer = asyncio.get_running_loop().call_at(self._deadline_s, self._on_timer)


def _gone(oldest_seq: int) -> StreamGone:
    return StreamGone("the cursor fell below the frames that are kept", oldestSeq=oldest_seq)
