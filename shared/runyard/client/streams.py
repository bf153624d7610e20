"""One reader's view of an invocation's stream, over as many connections as it takes."""

import time
from collections import deque
from collections.abc import AsyncIterator, Generator
from types import TracebackType
from typing import Any, Self

import httpx2
import orjson

from runyard.client.answers import Result
from runyard.client.events import EventReader, ServerEvent
from runyard.client.failures import StreamCut, UnexpectedAnswer, failure_from_body
from runyard.client.frames import Ended, Event, Frame, frame_of
from runyard.client.options import place
from runyard.client.progress import InHand, Progress
from runyard.client.transport import EVENT_STREAM, Call, Transport
from runyard.errors import RunyardError, StreamGone, Unauthenticated

ACCEPT_STREAM = {"Accept": EVENT_STREAM}

HELD_S = 10.0
"""A connection that brought anything for this long was a good one, even heartbeats alone: some calls wait for hours."""


def stream_call(stream_id: str) -> Call:
    return Call(method="GET", path=place("streams", stream_id), headers=ACCEPT_STREAM)


class Stream(InHand):
    """The frames of one invocation, in order, up to the last: `async for frame in stream`.

    It opens with `async with`, with `await`, or at its first frame; from then on `stream_id` is known. A stream that is
    not read to its end holds a connection until `aclose()`, which `async with` calls. Leaving it does not cancel the
    run.

    When the connection breaks, or is silent for 45 s, the stream reconnects and goes on at the next frame. If that
    frame is no longer kept, it begins anew, with a `Rewind` of everything and the committed text; `text` follows all of
    this. Only one task may read at a time; cancelling a read loses no frame.
    """

    def __init__(
        self,
        transport: Transport,
        opening: Call,
        *,
        stream_id: str | None = None,
        since: int | None = None,
        resume: bool,
    ) -> None:
        self._progress = Progress(stream_id=stream_id, cursor=since)
        self._transport = transport
        self._opening = opening
        self._resume = resume
        self._patience = transport.patience()
        self._connection: _Connection | None = None
        self._seeks_end = False
        self._closed = False

    async def open(self) -> Self:
        """Make the call, if it was not made yet, without reading a frame."""
        while self._connection is None and self._progress.result is None:
            await self._connect()
        return self

    async def read(self) -> Result:
        """Read to the end, and return how the invocation ended."""
        async for _frame in self:
            pass
        return self.result

    async def aclose(self) -> None:
        """Leave the stream. The run goes on."""
        self._closed = True
        await self._disconnect()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Frame:
        while self._progress.result is None and not self._closed:
            if self._connection is None:
                await self._connect()
            else:
                frame = await self._next(self._connection)
                if frame is not None:
                    return frame
        await self._disconnect()
        raise StopAsyncIteration

    def __await__(self) -> Generator[Any, None, Self]:
        return self.open().__await__()

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def __repr__(self) -> str:
        return f"Stream({self._progress.stream_id!r}, cursor={self._progress.cursor})"

    # Connections ---------------------------------------------------------------------------------------------------

    async def _connect(self) -> None:
        """Open the next connection, at the cursor. A call that was answered once is not made again."""
        progress = self._progress
        call = self._opening if progress.stream_id is None else stream_call(progress.stream_id)
        if progress.cursor is not None and not self._seeks_end:
            call = call.with_headers({"Last-Event-ID": str(progress.cursor)})
        try:
            response = await self._transport.answered(call, self._patience)
        except StreamGone:
            if not self._resume or "Last-Event-ID" not in call.headers:
                raise
            progress.begin_anew()
            return
        self._learn(response)
        self._connection = _Connection(response)

    def _learn(self, response: httpx2.Response) -> None:
        headers, progress = response.headers, self._progress
        progress.stream_id = headers.get("x-stream-id", progress.stream_id)
        progress.run_id = headers.get("x-run-id", progress.run_id)
        kind, _, name = headers.get("location", "").rpartition("/")
        if kind == "/v1/invocations":
            progress.invocation_id = name

    async def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.aclose()

    async def _next(self, connection: "_Connection") -> Frame | None:
        """The next frame. None: the connection has ended, and a new one was opened if that was possible."""
        try:
            event = await connection.next()
        except (httpx2.RequestError, httpx2.StreamError) as error:
            await self._cut(connection, error)
            return None
        if event is None:
            await self._ended(connection)
            return None
        frame = frame_of(event)
        if isinstance(frame, Event) and frame.event == "error" and frame.seq is None:
            await self._refused(connection, frame)
            return None
        if self._seeks_end and not isinstance(frame, Ended):
            return None  # the reader has it
        if frame.seq is not None:
            self._patience.eased()
        self._progress.take(frame)
        return frame

    async def _ended(self, connection: "_Connection") -> None:
        """The answer is over without the last frame: the gateway leaves, the reader has all of it, or no stream was
        meant.
        """
        match connection.status, connection.body:
            case 204, _ if not self._seeks_end:
                self._seeks_end = True  # only the last frame is wanted: it tells the result
                await self._disconnect()
            case _, None:
                await self._cut(connection, None)
            case status, _:
                await self._disconnect()
                raise UnexpectedAnswer(f"a stream was asked for, but the answer (status {status}) is not one")

    async def _cut(self, connection: "_Connection", error: Exception | None) -> None:
        await self._disconnect()
        lost = StreamCut(
            "the connection to the stream is lost", streamId=self._progress.stream_id, cursor=self._progress.cursor
        )
        lost.__cause__ = error
        if not self._resume:
            raise lost
        if connection.held_s >= HELD_S:
            self._patience.eased()
        elif connection.held_s:
            self._patience.reached()
        await self._patience.wait(lost, at_least_s=connection.retry_s)

    async def _refused(self, connection: "_Connection", frame: Event) -> None:
        """What a gateway says when it can no longer go on with this answer; the run has not ended by it."""
        try:
            failure: RunyardError = failure_from_body(frame.data["error"])
        except (KeyError, TypeError):
            failure = UnexpectedAnswer("the stream ended by an error without a code")
        await self._disconnect()
        if not self._resume:
            raise failure
        if isinstance(failure, StreamGone):
            self._progress.begin_anew()
        elif not (failure.retryable or (isinstance(failure, Unauthenticated) and callable(self._transport.token))):
            raise failure
        await self._patience.wait(failure, at_least_s=connection.retry_s)


class _Connection:
    """One answer, read event by event."""

    def __init__(self, response: httpx2.Response) -> None:
        self.status = response.status_code
        self._response = response
        self._reader = EventReader()
        self._ready: deque[ServerEvent] = deque()
        self._chunks: AsyncIterator[bytes] | None = None
        self._opened_s = time.monotonic()
        self.held_s = 0.0
        """From its first byte to its last so far."""
        self.body: bytes | None = None
        """Of an answer that is no stream."""
        if response.is_stream_consumed:
            self.body = response.content
            self._ready.extend(_whole(response))

    @property
    def retry_s(self) -> float:
        return (self._reader.retry_ms or 0) / 1000

    async def next(self) -> ServerEvent | None:
        """None: the answer is over."""
        while not self._ready:
            if self.body is not None:
                return None
            if self._chunks is None:
                self._chunks = self._response.aiter_bytes()
            received = await anext(self._chunks, None)
            if received is None:
                return None
            self.held_s = time.monotonic() - self._opened_s
            self._ready.extend(self._reader.feed(received))
        return self._ready.popleft()

    async def aclose(self) -> None:
        await self._response.aclose()


def _whole(response: httpx2.Response) -> list[ServerEvent]:
    """A function that streams nothing is answered with its result alone."""
    if response.status_code != httpx2.codes.OK:
        return []
    try:
        told = orjson.loads(response.content)
    except ValueError:
        return []
    if not isinstance(told, dict) or "status" not in told:
        return []
    return [ServerEvent(name="result", id=None, data=response.text)]
