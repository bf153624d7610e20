"""HTTP/1.1 on a raw asyncio transport: every chunk, every cut and every RST is where the script wants it."""

import asyncio
import socket
import struct
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import cast

import httptools

FLUSH_BYTES = 65536


class Exchange:
    """One request on a connection, and the way to answer it."""

    def __init__(self, connection: "Connection", method: str, target: str) -> None:
        self.method = method
        self.path, _, self.query = target.partition("?")
        self.headers: dict[str, str] = {}
        self.body = bytearray()
        self.bytes_sent = 0
        self.started = False
        self._connection = connection
        self._pending: list[bytes] = []
        self._pending_bytes = 0

    def start(self, status: int, headers: Mapping[str, str]) -> None:
        """Send the head of a body in chunks."""
        self._write(_head(status, {**headers, "transfer-encoding": "chunked"}))
        self.started = True

    async def chunk(self, data: bytes) -> None:
        """One HTTP chunk; written with its neighbours when nothing comes between them."""
        if not data:
            return  # an empty chunk would end the body
        self._pending.append(b"%x\r\n%b\r\n" % (len(data), data))
        self._pending_bytes += len(data)
        self.bytes_sent += len(data)
        if self._pending_bytes >= FLUSH_BYTES:
            await self.flush()

    async def flush(self) -> None:
        self._write(b"".join(self._pending))
        self._pending.clear()
        self._pending_bytes = 0
        await self._connection.drained.wait()

    async def finish(self) -> None:
        """End a body in chunks."""
        self._pending.append(b"0\r\n\r\n")
        await self.flush()

    def respond(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        """A whole answer at once."""
        self._write(_head(status, {**headers, "content-length": str(len(body))}) + body)
        self.bytes_sent += len(body)
        self.started = True

    async def close(self) -> None:
        """FIN after what was written, in mid-body or not."""
        await self.flush()
        self._connection.transport.close()

    async def reset(self) -> None:
        """RST, once what was written has left this process."""
        transport = self._connection.transport
        transport.set_write_buffer_limits(high=0)
        await self.flush()
        # A zero linger time turns the close into a reset: socket(7), SO_LINGER.
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        transport.abort()

    def _write(self, data: bytes) -> None:
        if data and not self._connection.transport.is_closing():
            self._connection.transport.write(data)


Handler = Callable[[Exchange], Awaitable[None]]


class Connection(asyncio.Protocol):
    """One client connection: requests one after another. When the client goes, the answer under way is cancelled."""

    transport: asyncio.Transport

    def __init__(self, handler: Handler, connections: set["Connection"]) -> None:
        self.drained = asyncio.Event()
        self.drained.set()
        self.answering: asyncio.Task[None] | None = None
        self._handler = handler
        self._connections = connections
        self._parser = httptools.HttpRequestParser(self)
        self._exchange: Exchange | None = None
        self._target = bytearray()
        self._headers: dict[str, str] = {}

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)  # uvloop's is one in all but its ancestors
        self._connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._connections.discard(self)
        self.drained.set()
        if self.answering is not None:
            self.answering.cancel()

    def pause_writing(self) -> None:
        self.drained.clear()

    def resume_writing(self) -> None:
        self.drained.set()

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self.transport.close()

    # httptools calls these -------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        self._target.clear()
        self._headers = {}

    def on_url(self, url: bytes) -> None:
        self._target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        self._exchange = Exchange(self, self._parser.get_method().decode(), self._target.decode())
        self._exchange.headers = self._headers

    def on_body(self, body: bytes) -> None:
        assert self._exchange is not None
        self._exchange.body += body

    def on_message_complete(self) -> None:
        if self.answering is not None and not self.answering.done():
            self.transport.close()  # pipelining: no client of ours does it
            return
        assert self._exchange is not None
        self.answering = asyncio.ensure_future(self._handler(self._exchange))


def _head(status: int, headers: Mapping[str, str]) -> bytes:
    try:
        reason = HTTPStatus(status).phrase
    except ValueError:
        reason = "Overloaded" if status == 529 else "Unknown"
    lines = [f"HTTP/1.1 {status} {reason}", *(f"{name}: {value}" for name, value in headers.items())]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")
