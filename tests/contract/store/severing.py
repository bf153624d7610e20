"""A relay before Postgres that cuts or holds a connection at a commit: before the server gets it, or after its answer.

A statement that writes outside of a transaction is a commit too: its own.
"""

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Coroutine
from enum import StrEnum
from typing import Any

from tests.postgres_relay import CHUNK_BYTES, Link, PostgresRelay, listening

COMMIT, ROLLBACK = b"COMMIT\x00", b"ROLLBACK\x00"
BEGIN = re.compile(rb"BEGIN( ISOLATION LEVEL [A-Z ]+)?\x00")
"""The texts of simple queries (https://www.postgresql.org/docs/current/protocol-message-formats.html)."""

WRITES = re.compile(rb"(INSERT INTO|UPDATE) agent_")


class Cut(StrEnum):
    BEFORE = "before"  # the server never gets the commit, and rolls back
    AFTER = "after"  # the server has committed, the client never gets its answer


class Held:
    """A commit that has come so far, and goes on when it is let."""

    def __init__(self, marker: bytes, where: Cut) -> None:
        self.marker = marker
        self.where = where
        self.reached = asyncio.Event()
        self.passes = asyncio.Event()

    async def stand(self) -> None:
        self.reached.set()
        await self.passes.wait()


class Relay(PostgresRelay):
    """Forwards bytes both ways until `cut` is set: then the next commit ends its link, and `cut` is None again."""

    def __init__(self, database_url: str) -> None:
        super().__init__(database_url)
        self.cut: Cut | None = None
        self.commits = 0
        """How many clients have sent."""

        self._held: Held | None = None

    def hold(self, marker: bytes, where: Cut) -> Held:
        """Hold the next commit of a transaction in whose statements these words stand.

        A link's first transactions send the statements' text; later ones name what the server has prepared.
        """
        self._held = Held(marker, where)
        return self._held

    def directions(self, client: Link, server: Link) -> tuple[Coroutine[Any, Any, None], Coroutine[Any, Any, None]]:
        (from_client, to_client), (from_server, to_server) = client, server
        answer_is_lost = False
        answer_held: Held | None = None

        async def upstream() -> None:
            nonlocal answer_is_lost, answer_held
            transaction, has_begun = b"", False
            while chunk := await from_client.read(CHUNK_BYTES):
                transaction += chunk
                has_begun = (has_begun or BEGIN.search(chunk) is not None) and ROLLBACK not in chunk
                if COMMIT in chunk or (not has_begun and WRITES.search(chunk)):
                    self.commits += 1
                    has_begun = False
                    if self.cut is not None:
                        cut, self.cut = self.cut, None
                        if cut is Cut.BEFORE:
                            return
                        answer_is_lost = True
                    if self._held is not None and self._held.marker in transaction:
                        held, self._held = self._held, None
                        if held.where is Cut.BEFORE:
                            await held.stand()
                        else:
                            answer_held = held
                    transaction = b""
                to_server.write(chunk)

        async def downstream() -> None:
            while chunk := await from_server.read(CHUNK_BYTES):
                if answer_is_lost:
                    return
                if answer_held is not None:
                    await answer_held.stand()
                to_client.write(chunk)

        return upstream(), downstream()


@contextlib.asynccontextmanager
async def relay_before(database_url: str) -> AsyncIterator[Relay]:
    """A relay that listens; its `url` leads through it."""
    async with listening(Relay(database_url)) as relay:
        yield relay
