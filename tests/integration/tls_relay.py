"""A relay that adds TLS to a plain server.

On an event loop of its own, in a thread: whoever connects may block the test's.
"""

import asyncio
import contextlib
import ssl
import threading
from collections.abc import Iterator
from urllib.parse import urlsplit

SSL_REQUEST_BYTES = 8
"""A client of Postgres asks for TLS in plain text first, and is answered one letter.

https://www.postgresql.org/docs/current/protocol-flow.html#PROTOCOL-FLOW-SSL
"""

CHUNK_BYTES = 65_536

Ends = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class TlsRelay:
    """`links`: how many were encrypted, the handshake done."""

    def __init__(self, url: str, context: ssl.SSLContext) -> None:
        self._parts = urlsplit(url)
        self._context = context
        self._asks_first = self._parts.scheme.startswith("postgres")
        self._listens = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._closed = asyncio.Event()
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=(self._serve(),), daemon=True)
        self._thread.start()
        self._listens.wait()

    links = 0
    port = 0

    def url(self, scheme: str, query: str) -> str:
        """The same address through the relay."""
        credentials = self._parts.netloc.rpartition("@")[0]
        netloc = f"{credentials}@127.0.0.1:{self.port}" if credentials else f"127.0.0.1:{self.port}"
        return self._parts._replace(scheme=scheme, netloc=netloc, query=query).geturl()

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._closed.set)
        self._thread.join()
        self._loop.close()

    async def _serve(self) -> None:
        context = None if self._asks_first else self._context
        server = await asyncio.start_server(self._link, "127.0.0.1", 0, ssl=context)
        self.port = server.sockets[0].getsockname()[1]
        self._listens.set()
        await self._closed.wait()
        server.close()
        links = asyncio.all_tasks() - {asyncio.current_task()}
        for link in links:
            link.cancel()
        await asyncio.gather(*links, return_exceptions=True)

    async def _link(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):  # who does not trust the certificate hangs up
            if self._asks_first:
                await reader.readexactly(SSL_REQUEST_BYTES)
                writer.write(b"S")
                await writer.start_tls(self._context)
            self.links += 1
            there = await asyncio.open_connection(self._parts.hostname, self._parts.port)
            await _joined((reader, writer), there)
        writer.close()


async def _joined(here: Ends, there: Ends) -> None:
    both = {asyncio.ensure_future(_copied(here[0], there[1])), asyncio.ensure_future(_copied(there[0], here[1]))}
    try:
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for direction in both:
            direction.cancel()
        there[1].close()


async def _copied(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while chunk := await source.read(CHUNK_BYTES):
            sink.write(chunk)
            await sink.drain()


@contextlib.contextmanager
def tls_before(url: str, context: ssl.SSLContext) -> Iterator[TlsRelay]:
    relay = TlsRelay(url, context)
    try:
        yield relay
    finally:
        relay.close()
