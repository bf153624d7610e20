"""The common part of the relays before Postgres that read its messages: one connection a client, in both directions."""

import asyncio
import contextlib
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Coroutine
from typing import Any, TypeVar

import sqlalchemy as sa

CHUNK_BYTES = 65_536

Link = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class PostgresRelay(ABC):
    """`url` leads through it while it listens."""

    def __init__(self, database_url: str) -> None:
        self._target = sa.make_url(database_url)
        self._links: set[asyncio.Task[None]] = set()
        self.url = ""

    @abstractmethod
    def directions(self, client: Link, server: Link) -> tuple[Coroutine[Any, Any, None], Coroutine[Any, Any, None]]:
        """What copies from the client to the server, and back. The link ends with the first of them."""

    async def serve(self, from_client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        """One link, from its first byte to its last."""
        try:
            from_server, to_server = await asyncio.open_connection(self._target.host, self._target.port or 5432)
        except OSError:  # there is no server now
            to_client.close()
            return
        both = self.directions((from_client, to_client), (from_server, to_server))
        tasks = {asyncio.ensure_future(direction) for direction in both}
        self._links |= tasks
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            task.cancel()
        for writer in (to_server, to_client):
            writer.close()

    async def close(self) -> None:
        for link in self._links:
            link.cancel()
        await asyncio.gather(*self._links, return_exceptions=True)


R = TypeVar("R", bound=PostgresRelay)


async def copied(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    while chunk := await source.read(CHUNK_BYTES):
        sink.write(chunk)


@contextlib.asynccontextmanager
async def listening(relay: R) -> AsyncIterator[R]:
    server = await asyncio.start_server(relay.serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    # Encrypted, one message could not be told from another.
    through = relay._target.set(host="127.0.0.1", port=port)
    through = through.update_query_dict({"sslmode": "disable", "gssencmode": "disable"})
    relay.url = through.render_as_string(hide_password=False)
    try:
        yield relay
    finally:
        server.close()
        await relay.close()
