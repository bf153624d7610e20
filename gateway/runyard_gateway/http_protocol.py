"""uvicorn's HTTP/1.1 protocol, made right for clients of HTTP/1.0."""

from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

ServedApp = Any
"""An ASGI application in uvicorn's own types, which are not starlette's."""


class HttpProtocol(HttpToolsProtocol):
    """An answer to HTTP/1.0 comes without chunks and ends with the connection (RFC 9112, section 6.1).

    uvicorn closes the connection, but sends the chunks all the same, which such a client takes for content.
    """

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ServedApp) -> None:
        super()._start_asgi_task(cycle, app if cycle.scope["http_version"] != "1.0" else _without_chunks(cycle, app))


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
