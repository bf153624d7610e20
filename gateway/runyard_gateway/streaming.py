"""Answers that stream: an invocation's frames, from a cursor to the terminal one; the feed and rooms, without end."""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Protocol

from starlette.types import Receive, Scope, Send

from runyard.db.reads import invocations_by_stream
from runyard.db.records import Invocation
from runyard.errors import RunyardError, StoreUnavailable, StreamGone, StreamNotFound
from runyard.frames import Frame, FrameEvent, event_payload
from runyard.ids import StreamId
from runyard.metrics import RESUMES
from runyard.streams.reader import StreamState
from runyard_gateway.auth.principal import Credential
from runyard_gateway.from_rows import committed_frames, settled_frames, trimmed_frame
from runyard_gateway.gateway import Gateway
from runyard_gateway.sse import SSE_HEADERS, Headers, Pulled, encode, raw_headers, stream_sse
from runyard_gateway.tail import Position, Tail


@dataclass(frozen=True, kw_only=True, slots=True)
class NewStream:
    """The stream of a call that was just accepted: all of it is still to come.

    `receipt`: for input that steers a running invocation, what is sent first, under the number of the newest frame; the
    invocation's stream follows from there.
    """

    gateway: Gateway
    stream_id: StreamId
    credential: Credential
    request_id: str
    headers: Mapping[str, str]
    receipt: Mapping[str, object] | None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = stream_headers(self.stream_id, self.headers)
        cursor, first = 0, b""
        if self.receipt is not None:
            cursor = await self._tip()
            first = encode(Frame(cursor, *event_payload(FrameEvent.QUEUED, dict(self.receipt))))
        with self.gateway.hub.watch(self.stream_id).bound_to(self.credential) as tail:
            await stream_sse(
                scope, receive, send, tail, cursor, headers=headers, first=first, request_id=self.request_id
            )

    async def _tip(self) -> int:
        """The number of the newest frame, or of the one before the terminal frame, which this reader has not seen."""
        try:
            info = await self.gateway.store.info(self.stream_id)
        except StoreUnavailable:
            return 0
        if info is None:
            return 0
        return info.last - 1 if info.state is StreamState.CLOSED else info.last


@dataclass(frozen=True, kw_only=True, slots=True)
class ResumedStream:
    """A stream from the reader's cursor on; None: from the beginning. Who may read was decided before.

    The object lives as long as the answer, so it does not keep the row: it reads it when the frames do not say enough.
    """

    gateway: Gateway
    stream_id: StreamId
    credential: Credential
    cursor: int | None
    request_id: str
    headers: Mapping[str, str] = field(default_factory=dict)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers 204 at the tip of a stream that has ended, so that an EventSource stops.

        Raises:
            StreamGone: before the answer begins: frames after the cursor were dropped.
        """
        headers = stream_headers(self.stream_id, self.headers)
        if self.cursor:
            RESUMES.inc()
        with self.gateway.hub.watch(self.stream_id, seeks=True).bound_to(self.credential) as tail:
            position, cursor, frames = await self._seek(tail)
            if position is Position.ENDED:
                await send({"type": "http.response.start", "status": 204, "headers": headers})
                await send({"type": "http.response.body", "body": b""})
                return
            first = b"".join(map(encode, frames))
            if position is Position.ABSENT and frames:
                await _send_whole(send, headers, first)
                return
            await stream_sse(
                scope, receive, send, tail, cursor, headers=headers, first=first, request_id=self.request_id
            )

    async def row(self) -> Invocation:
        """Raises `StreamNotFound` if the run was deleted after the reader was authorized."""
        found = await self.gateway.database.read(invocations_by_stream, [self.stream_id])
        if self.stream_id not in found:
            raise StreamNotFound("Unknown or expired stream id")
        return found[self.stream_id]

    async def _seek(self, tail: Tail) -> tuple[Position, int, list[Frame]]:
        """Where to read on, and the frames to send before that."""
        cursor = self.cursor or 0
        frames: list[Frame] = []
        try:
            position = await tail.seek(cursor)
        except StreamGone:
            if self.cursor is not None:
                raise
            position, cursor, frames = await self._begin_late(tail)
        if position is Position.ABSENT and (row := await self.row()).settled_at is not None:
            frames = await settled_frames(self.gateway.database, row)
            if cursor >= frames[-1].seq:
                return Position.ENDED, cursor, []
        return position, cursor, frames

    async def _begin_late(self, tail: Tail) -> tuple[Position, int, list[Frame]]:
        """A newcomer to a trimmed stream gets the committed text in place of the frames that are gone.

        Frames after that text may be gone too, like a tool's output or the first words of a long answer: the reader is
        told so. What is kept of the answer is enough, since its worker writes a long answer anew in time (`ModelCall`).
        """
        row = await self.row()
        cursor, frames = await committed_frames(self.gateway.database, row)
        while True:
            try:
                return await tail.seek(cursor), cursor, frames
            except StreamGone as gone:
                kept_from = gone.fields["oldestSeq"]
                frames.append(trimmed_frame(row, from_seq=cursor + 1, to_seq=kept_from - 1))
                cursor = kept_from - 1


class Reader(Pulled, Protocol):
    """A reader of the feed or of a room."""

    def fail(self, error: RunyardError) -> None:
        """Every pull raises this from now on."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class EndlessStream:
    """The feed, or a room: it goes on until the reader leaves, their credential ends, or the process stops.

    `reading`: the reader, from when the answer begins until it ends. `first`: sent before everything else, encoded.
    """

    reading: AbstractContextManager[Reader]
    credential: Credential
    request_id: str
    headers: Headers
    cursor: int = 0
    first: bytes = b""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self.reading as reader:
            take_back = self.credential.on_end(reader.fail)
            try:
                await stream_sse(
                    scope,
                    receive,
                    send,
                    reader,
                    self.cursor,
                    headers=self.headers,
                    first=self.first,
                    request_id=self.request_id,
                )
            finally:
                take_back()


async def _send_whole(send: Send, headers: Headers, body: bytes) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [*SSE_HEADERS, *headers]})
    await send({"type": "http.response.body", "body": body})


def stream_headers(stream_id: StreamId, more: Mapping[str, str]) -> Headers:
    return [(b"x-stream-id", stream_id.encode()), *raw_headers(more)]
