"""A relay before Postgres that counts the statements that pass."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import sqlalchemy as sa

CHUNK_BYTES = 65_536
STATEMENTS = (b"Q"[0], b"E"[0])
"""Query and Execute (https://www.postgresql.org/docs/current/protocol-message-formats.html)."""

LENGTH_BYTES = 4


class StatementRelay:
    """`url` leads through it. `statements`: how many clients have sent so far, BEGIN and COMMIT included."""

    def __init__(self, database_url: str) -> None:
        self._target = sa.make_url(database_url)
        self._links: set[asyncio.Task[None]] = set()
        self.statements = 0
        self.url = ""

    async def per_s(self, window_s: float) -> float:
        """From now on, for so long."""
        before, began_s = self.statements, asyncio.get_running_loop().time()
        await asyncio.sleep(window_s)
        return (self.statements - before) / (asyncio.get_running_loop().time() - began_s)

    async def serve(self, from_client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        """One link, from its first byte to its last."""
        from_server, to_server = await asyncio.open_connection(self._target.host, self._target.port or 5432)
        directions = {
            asyncio.create_task(self._upstream(from_client, to_server)),
            asyncio.create_task(_copy(from_server, to_client)),
        }
        self._links |= directions
        await asyncio.wait(directions, return_when=asyncio.FIRST_COMPLETED)
        for direction in directions:
            direction.cancel()
        for writer in (to_server, to_client):
            writer.close()

    async def close(self) -> None:
        for link in self._links:
            link.cancel()
        await asyncio.gather(*self._links, return_exceptions=True)

    async def _upstream(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        """After the startup message, which has no type, each message is a type, its length with the length, a body."""
        waiting = bytearray()
        is_started = False
        while chunk := await source.read(CHUNK_BYTES):
            sink.write(chunk)
            waiting += chunk
            while len(waiting) > LENGTH_BYTES:
                length = int.from_bytes(waiting[is_started : is_started + LENGTH_BYTES]) + is_started
                if len(waiting) < length:
                    break
                self.statements += is_started and waiting[0] in STATEMENTS
                is_started = True
                del waiting[:length]


async def _copy(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    while chunk := await source.read(CHUNK_BYTES):
        sink.write(chunk)


@contextlib.asynccontextmanager
async def counting_statements(database_url: str) -> AsyncIterator[StatementRelay]:
    relay = StatementRelay(database_url)
    server = await asyncio.start_server(relay.serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    # Encrypted, one message could not be told from another.
    through = sa.make_url(database_url).set(host="127.0.0.1", port=port)
    relay.url = through.update_query_dict({"sslmode": "disable", "gssencmode": "disable"}).render_as_string(
        hide_password=False
    )
    try:
        yield relay
    finally:
        server.close()
        await relay.close()
