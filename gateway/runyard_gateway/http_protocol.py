"""uvicorn's HTTP/1.1 protocol, with what many open streams need, and made right for clients of HTTP/1.0."""

import asyncio
from functools import partial
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from runyard_gateway.guarded_protocol import GuardedProtocol, ServedApp

CHUNKS = "runyard.chunks"
"""The ASGI extension of this server: a `Callable[[bytes], bool]` that writes a chunk (`as_chunk`) of a body whose
length was not given, between two sends and in their order. False: the connection takes nothing now, or is gone. Who
sends the same to a thousand readers frames it once, and spares each the way through its task and the application."""

STALLED_S = 1.5
"""How long a connection may take, once the server leaves, for what was written to it. Whoever takes it no faster is cut
off: the end of their stream would not reach them either, and they come back by cursor."""


class HttpProtocol(GuardedProtocol):
    """An answer to HTTP/1.0 comes without chunks and ends with the connection (RFC 9112, section 6.1).

    uvicorn closes the connection, but sends the chunks all the same, which such a client takes for content.
    """

    def shutdown(self) -> None:
        super().shutdown()
        self.loop.call_later(STALLED_S, self._cut_off_stalled)

    def _cut_off_stalled(self) -> None:
        if self.transport.get_write_buffer_size():
            self.transport.abort()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ServedApp) -> None:
        if cycle.scope["http_version"] == "1.0":
            app = _without_chunks(cycle, app)
        else:
            extensions: Any = {CHUNKS: partial(_write, self.transport, self.flow)}
            cycle.scope["extensions"] = extensions
        super()._start_asgi_task(cycle, app)


def as_chunk(body: bytes) -> bytes:
    """RFC 9112, section 7.1. `body` is not empty, which would be the last chunk."""
    return b"%x\r\n%b\r\n" % (len(body), body)


def _write(transport: asyncio.Transport, flow: FlowControl, chunk: bytes) -> bool:
    if flow.write_paused or transport.is_closing():
        return False
    transport.write(chunk)
    return True


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
