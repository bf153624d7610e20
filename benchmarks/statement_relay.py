"""A relay before Postgres that counts the statements that pass."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Coroutine
from typing import Any

from tests.postgres_relay import CHUNK_BYTES, Link, PostgresRelay, copied, listening

STATEMENTS = (b"Q"[0], b"E"[0])
"""Query and Execute (https://www.postgresql.org/docs/current/protocol-message-formats.html)."""

LENGTH_BYTES = 4


class StatementRelay(PostgresRelay):
    """`statements`: how many clients have sent so far, BEGIN and COMMIT included."""

    def __init__(self, database_url: str) -> None:
        super().__init__(database_url)
        self.statements = 0

    async def per_s(self, window_s: float) -> float:
        """From now on, for so long."""
        before, began_s = self.statements, asyncio.get_running_loop().time()
        await asyncio.sleep(window_s)
        return (self.statements - before) / (asyncio.get_running_loop().time() - began_s)

    def directions(self, client: Link, server: Link) -> tuple[Coroutine[Any, Any, None], Coroutine[Any, Any, None]]:
        return self._upstream(client[0], server[1]), copied(server[0], client[1])

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


@contextlib.asynccontextmanager
async def counting_statements(database_url: str) -> AsyncIterator[StatementRelay]:
    async with listening(StatementRelay(database_url)) as relay:
        yield relay
