"""Server-sent events: the one encoder, and the response that writes what a tail yields.

https://html.spec.whatwg.org/multipage/server-sent-events.html
"""

import asyncio
import random
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol, runtime_checkable

import orjson
from starlette.types import Receive, Scope, Send

from runyard.errors import RunyardError
from runyard.frames import Frame, FrameEvent
from runyard.metrics import OPEN_STREAMS
from runyard_gateway.http_protocol import LINK, Link

HEARTBEAT = b": hb\n\n"
HEARTBEAT_S = 15.0
"""Proxies cut a silent answer after 60 s or less; a reader that hears nothing for several heartbeats reconnects."""

WRITE_BYTES = 65_536
"""How much one write takes, unless a single frame is larger. A stalled reader holds about three of them in the process.
"""

RETRY_MS = (1000, 3000)
"""When a gateway leaves, its readers come back spread over this interval."""

SSE_HEADERS: tuple[tuple[bytes, bytes], ...] = (
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),  # nginx passes each write on at once
)

Headers = list[tuple[bytes, bytes]]
"""In ASGI's form."""

_LINE_END = re.compile(rb"\r\n|\n|\r")


class Chunk(NamedTuple):
    body: bytes
    """Encoded frames; empty when nothing came in time."""
    cursor: int
    """The number of the last frame that the reader then has."""
    ended: bool
    """Nothing more follows in this response: the terminal frame was sent, or the process stops."""


class Pulled(Protocol):
    """The part of `runyard_gateway.tail.Tail` that a response needs."""

    async def pull(self, cursor: int, timeout_s: float) -> Chunk: ...

    def interrupt(self) -> None: ...


@runtime_checkable
class WrittenPast(Protocol):
    """A source that may also write by itself while its reader waits."""

    def write_by(self, link: Link) -> None: ...


def encode(frame: Frame) -> bytes:
    """One event. A frame with the number 0 gets no `id:` line, so that the reader's cursor stays where it is.

    A reader gets the data back byte for byte unless it contains a CR. No payload does (`runyard.frames`), and if one
    did, it still could not inject a field.
    """
    seq, event, data = frame
    if b"\n" in data or b"\r" in data:
        data = b"\ndata: ".join(_LINE_END.split(data))
    if event is None and seq:
        return b"id: %d\ndata: %b\n\n" % (seq, data)
    number = b"id: %d\n" % seq if seq else b""
    kind = b"event: %b\n" % event.encode() if event else b""
    return b"%b%bdata: %b\n\n" % (number, kind, data)


def raw_headers(headers: Mapping[str, str]) -> Headers:
    return [(name.lower().encode(), value.encode()) for name, value in headers.items()]


def fitting(encoded: Sequence[bytes]) -> int:
    """How many of these one write takes: at least the first."""
    size_bytes = 0
    for count, each in enumerate(encoded):
        size_bytes += len(each)
        if size_bytes > WRITE_BYTES:
            return max(count, 1)
    return len(encoded)


def encode_error(error: RunyardError, request_id: str | None = None) -> bytes:
    """The error's body as an un-numbered `error` frame: the most that a response which has begun can still say."""
    return encode(Frame(0, FrameEvent.ERROR, orjson.dumps(error.body(request_id))))


def decode(body: bytes) -> Iterator[Frame]:
    """The frames that `encode` wrote one after the other."""
    for part in body.split(b"\n\n")[:-1]:
        seq, event, data = 0, None, []
        for line in part.split(b"\n"):
            match line.partition(b": "):
                case (b"id", _, value):
                    seq = int(value)
                case (b"event", _, value):
                    event = value.decode()
                case (b"data", _, value):
                    data.append(value)
        yield Frame(seq, event, b"\n".join(data))


def retry_line() -> bytes:
    """How long a client waits before it reconnects; drawn anew for each response."""
    return b"retry: %d\n\n" % random.randint(*RETRY_MS)  # noqa: S311 - spreads load, guards nothing


async def stream_sse(
    scope: Scope,
    receive: Receive,
    send: Send,
    tail: Pulled,
    cursor: int,
    *,
    headers: Iterable[tuple[bytes, bytes]],
    heartbeat_s: float = HEARTBEAT_S,
    prelude: bytes | None = None,
    first: bytes = b"",
    request_id: str | None = None,
) -> None:
    """Answer with the stream after `cursor`, up to its end.

    `headers` follow `SSE_HEADERS`; `prelude` replaces the retry line and the first heartbeat; `first` is sent before
    the frames, already encoded. All of these leave together, at once. Then each send carries everything that is
    pending, a heartbeat follows `heartbeat_s` without a send, and the response ends right after the terminal frame,
    when the client disconnects, or when the process stops. Meanwhile the caller holds the tail and nothing else.
    """
    await send({"type": "http.response.start", "status": 200, "headers": [*SSE_HEADERS, *headers]})
    if scope["method"] == "HEAD":
        await send({"type": "http.response.body", "body": b""})
        return
    link: Link | None = scope.get("extensions", {}).get(LINK)
    if link is not None and isinstance(tail, WrittenPast):
        tail.write_by(link)
    OPEN_STREAMS.inc()
    take_back = _on_leave(link, receive, tail.interrupt)
    try:
        opening = retry_line() + HEARTBEAT if prelude is None else prelude
        await send({"type": "http.response.body", "body": opening + first, "more_body": True})
        ended = False
        while not ended:
            try:
                body, cursor, ended = await tail.pull(cursor, heartbeat_s)
            except RunyardError as error:
                body, ended = encode_error(error, request_id), True
            await send(
                {"type": "http.response.body", "body": body if body or ended else HEARTBEAT, "more_body": not ended}
            )
    finally:
        OPEN_STREAMS.dec()
        take_back()


def _on_leave(link: Link | None, receive: Receive, tell: Callable[[], None]) -> Callable[[], object]:
    """Call `tell` once the client has left. The returned function cancels that."""
    if link is not None:
        link.on_leave(tell)
        return lambda: link.on_leave(None)
    gone = asyncio.create_task(disconnected(receive))
    gone.add_done_callback(lambda _: tell())
    return gone.cancel


async def disconnected(receive: Receive) -> None:
    """Return when the client has left."""
    while (await receive())["type"] != "http.disconnect":
        pass
