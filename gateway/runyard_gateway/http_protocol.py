"""uvicorn's HTTP/1.1 protocol, extended for many open streams and corrected for clients of HTTP/1.0."""

from collections.abc import Callable
from typing import Any, Protocol

from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from runyard_gateway.guarded_protocol import GuardedProtocol, ServedApp

LINK = "runyard.link"
"""The name of this server's ASGI extension, a `Link`; it exists when the body of the answer is sent in chunks."""

STALLED_S = 1.5
"""How long a connection may take for what was written to it, once the server is leaving. Slower ones are cut off: they
would not receive the end of their stream either, and they come back by cursor."""


class Link(Protocol):
    """The connection that an answer is sent on."""

    def write_chunk(self, chunk: bytes) -> bool:
        """Write one chunk (`as_chunk`) of the body, between two sends and in their order. False: the connection takes
        nothing now, or is gone.

        With it, data for a thousand readers is framed once and skips each reader's task and the application.
        """
        ...

    def on_leave(self, tell: Callable[[], None] | None) -> None:
        """Call `tell` once when the client leaves; None cancels that. (Waiting for it with `receive` would need a
        task.)
        """
        ...


class HttpProtocol(GuardedProtocol):
    """Answers to HTTP/1.0 are sent without chunks and end with the connection (RFC 9112, section 6.1).

    uvicorn closes the connection but sends chunks all the same, which such a client takes for content.
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
    """RFC 9112, section 7.1. `body` must not be empty: that would be the last chunk."""
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
