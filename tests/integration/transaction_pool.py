"""A pool of Postgres sessions like PgBouncer in transaction mode: a client gets a session for one transaction.

It refuses what PgBouncer 1.18 refuses, and notes statements that a client prepares under a name: with the next
transaction they belong to a session of somebody else. On an event loop of its own, in a thread: clients may block.
https://www.postgresql.org/docs/current/protocol-message-formats.html
"""

import asyncio
import contextlib
import struct
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

import sqlalchemy as sa

TRACKED = {"user", "database", "client_encoding", "datestyle", "timezone", "standard_conforming_strings"} | {
    "application_name"
}
"""https://www.pgbouncer.org/config.html#ignore_startup_parameters"""

PROTOCOL = 196608
ASKS_FOR_ANSWER = b"QS"
"""Query and Sync: each is answered by one ReadyForQuery."""


@dataclass(eq=False, kw_only=True)
class Session:
    """One of the server. `welcome`: what it said when it began."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    welcome: bytes = b""


@dataclass(eq=False, kw_only=True)
class Client:
    writer: asyncio.StreamWriter
    session: Session | None = None
    awaited: int = 0
    pump: asyncio.Task[None] | None = None


@dataclass(kw_only=True)
class TransactionPool:
    database_url: str
    size: int
    url: str = ""
    clients: int = 0
    refused: list[str] = field(default_factory=list)
    prepared: list[str] = field(default_factory=list)
    opened: int = 0
    _idle: asyncio.LifoQueue[Session | None] = field(default_factory=asyncio.LifoQueue)
    """None: one that is not open yet."""

    def __post_init__(self) -> None:
        self._target = sa.make_url(self.database_url)
        for _ in range(self.size):
            self._idle.put_nowait(None)

    async def serve(self, closed: asyncio.Event, listens: threading.Event) -> None:
        server = await asyncio.start_server(self._client, "127.0.0.1", 0)
        through = self._target.set(host="127.0.0.1", port=server.sockets[0].getsockname()[1])
        through = through.update_query_dict({"sslmode": "disable", "gssencmode": "disable", "pgbouncer": "true"})
        self.url = through.render_as_string(hide_password=False)
        listens.set()
        await closed.wait()
        server.close()
        links = asyncio.all_tasks() - {asyncio.current_task()}
        for link in links:
            link.cancel()
        await asyncio.gather(*links, return_exceptions=True)
        while not self._idle.empty():
            if (session := self._idle.get_nowait()) is not None:
                session.writer.close()
                await session.writer.wait_closed()

    async def _client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        client = Client(writer=writer)
        self.clients += 1
        try:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                if await self._welcomed(reader, writer):
                    await self._relay(reader, client)
        finally:
            if client.session is not None:  # it left in the middle of a transaction
                client.session.writer.close()
                self._idle.put_nowait(None)
            if client.pump is not None:
                client.pump.cancel()
            writer.close()

    async def _welcomed(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        (length,) = struct.unpack("!I", await reader.readexactly(4))
        body = await reader.readexactly(length - 4)
        if struct.unpack("!I", body[:4])[0] != PROTOCOL:  # a request to cancel
            return False
        words = body[4:].rstrip(b"\0").decode().split("\0")
        unknown = sorted(set(words[::2]) - TRACKED)
        if unknown:
            self.refused += unknown
            fields = f"SFATAL\0C08P01\0Munsupported startup parameter: {unknown[0]}\0\0".encode()
            writer.write(b"E" + struct.pack("!I", len(fields) + 4) + fields)
            await writer.drain()
            return False
        session = await self._take()
        writer.write(session.welcome)
        self._idle.put_nowait(session)
        return True

    async def _relay(self, reader: asyncio.StreamReader, client: Client) -> None:
        while True:
            kind, message = await _message(reader)
            if kind == b"X":
                return
            if kind == b"P" and (name := message[5 : message.index(b"\0", 5)]):
                self.prepared.append(name.decode())
            if client.session is None:
                client.session = await self._take()
                client.pump = asyncio.create_task(self._answers(client, client.session))
            client.awaited += kind in ASKS_FOR_ANSWER
            client.session.writer.write(message)

    async def _answers(self, client: Client, session: Session) -> None:
        """Until the transaction is over."""
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            while True:
                kind, message = await _message(session.reader)
                if kind == b"Z":
                    client.awaited -= 1
                    if client.awaited == 0 and message[-1:] == b"I":
                        client.session = None
                        self._idle.put_nowait(session)
                        client.writer.write(message)
                        return
                client.writer.write(message)

    async def _take(self) -> Session:
        session = await self._idle.get()
        if session is not None:
            return session
        reader, writer = await asyncio.open_connection(self._target.host, self._target.port or 5432)
        session = Session(reader=reader, writer=writer)
        words = f"user\0{self._target.username}\0database\0{self._target.database}\0\0".encode()
        writer.write(struct.pack("!II", len(words) + 8, PROTOCOL) + words)
        kind = b""
        while kind != b"Z":
            kind, message = await _message(reader)
            session.welcome += message
        self.opened += 1
        return session


async def _message(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    """Its type, and all of it."""
    head = await reader.readexactly(5)
    (length,) = struct.unpack("!I", head[1:])
    return head[:1], head + await reader.readexactly(length - 4)


@contextlib.contextmanager
def pooled(database_url: str, *, size: int) -> Iterator[TransactionPool]:
    """Of a server that asks for no password."""
    pool = TransactionPool(database_url=database_url, size=size)
    loop, closed, listens = asyncio.new_event_loop(), asyncio.Event(), threading.Event()
    thread = threading.Thread(target=loop.run_until_complete, args=(pool.serve(closed, listens),), daemon=True)
    thread.start()
    listens.wait()
    try:
        yield pool
    finally:
        loop.call_soon_threadsafe(closed.set)
        thread.join()
        loop.close()
