"""uvicorn's HTTP/1.1 protocol, with what many open streams need, and made right for clients of HTTP/1.0."""

from collections.abc import Callable
from typing import Any, Protocol

from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from runyard_gateway.guarded_protocol import GuardedProtocol, ServedApp

LINK = "runyard.link"
"""The ASGI extension of this server, a `Link`, where the answer's body comes in chunks."""

STALLED_S = 1.5
"""How long a connection may take, once the server leaves, for what was written to it. Whoever takes it no faster is cut
off: the end of their stream would not reach them either, and they come back by cursor."""


class Link(Protocol):
    """The connection that an answer goes out on."""

    def write_chunk(self, chunk: bytes) -> bool:
        """Write a chunk (`as_chunk`) of the body, between two sends and in their order. False: the connection takes
        nothing now, or is gone. Who sends the same to a thousand readers frames it once, and spares each the way
        through its task and the application.
        """
        ...

    def on_leave(self, tell: Callable[[], None] | None) -> None:
        """`tell` is called once the client has left; None takes that back. Who waits for it by `receive` has a task."""
        ...


class HttpProtocol(GuardedProtocol):
    """An answer to HTTP/1.0 comes without chunks and ends with the connection (RFC 9112, section 6.1).

    uvicorn closes the connection, but sends the chunks all the same, which such a client takes for content.
    """

    __slots__ = ()

    def shutdown(self) -> None:
        super().shutdown()
        self.loop.call_later(STALLED_S, self._cut_off_stalled)

    def write_chunk(self, chunk: bytes) -> bool:
        if self.flow.write_paused or self.transport.is_closing():
            return False
        self.transport.write(chunk)
        return True

    def _cut_off_stalled(self) -> None:
        if self.transport.get_write_buffer_size():
            self.transport.abort()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ServedApp) -> None:
        if cycle.scope["http_version"] == "1.0":
            app = _without_chunks(cycle, app)
        else:
            extensions: Any = {LINK: self}
            cycle.scope["extensions"] = extensions
        super()._start_asgi_task(cycle, app)


def as_chunk(body: bytes) -> bytes:
    """RFC 9112, section 7.1. `body` is not empty, which would be the last chunk."""
    return b"%x\r\n%b\r\n" % (len(body), body)


def _without_chunks(cycle: RequestResponseCycle, app: ASGIApp) -> ServedApp:
    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        async def send_plain(message: Message) -> None:
            if message["type"] == "http.response.body":
                # What uvicorn compares with what it is given: a length that nobody has promised cannot be missed.
                cycle.expected_content_length = len(message.get("body", b""))
            await send(message)

        cycle.chunked_encoding = False
        await app(scope, receive, send_plain)

    return answer
