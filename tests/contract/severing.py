"""A relay before Postgres that cuts or holds a link at a commit: before the server has it, or after it has answered."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from enum import StrEnum

import sqlalchemy as sa

COMMIT = b"COMMIT\x00"
"""The text of a simple query (https://www.postgresql.org/docs/current/protocol-message-formats.html)."""


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


class Relay:
    """Forwards bytes both ways until `cut` is set: then the next commit ends its link, and `cut` is None again."""

    def __init__(self, database_url: str) -> None:
        self._target = sa.make_url(database_url)
        self._links: set[asyncio.Task[None]] = set()
        self.url = ""
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

    async def serve(self, from_client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        """One link, from its first byte to its last."""
        try:
            from_server, to_server = await asyncio.open_connection(self._target.host, self._target.port or 5432)
        except OSError:  # there is no server now
            to_client.close()
            return
        answer_is_lost = False
        answer_held: Held | None = None

        async def upstream() -> None:
            nonlocal answer_is_lost, answer_held
            transaction = b""
            while chunk := await from_client.read(65_536):
                transaction += chunk
                self.commits += COMMIT in chunk
                if COMMIT in chunk:
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
            while chunk := await from_server.read(65_536):
                if answer_is_lost:
                    return
                if answer_held is not None:
                    await answer_held.stand()
                to_client.write(chunk)

        directions = {asyncio.ensure_future(upstream()), asyncio.ensure_future(downstream())}
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


@contextlib.asynccontextmanager
async def relay_before(database_url: str) -> AsyncIterator[Relay]:
    """A relay that listens; its `url` leads through it."""
    relay = Relay(database_url)
    server = await asyncio.start_server(relay.serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    # Encrypted, a commit could not be told from anything else.
    through = sa.make_url(database_url).set(host="127.0.0.1", port=port).update_query_dict({"sslmode": "disable"})
    relay.url = through.render_as_string(hide_password=False)
    try:
        yield relay
    finally:
        server.close()
        await relay.close()
