"""Many cheap readers of server-sent events, which only count frames."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Sequence
from typing import cast
from urllib.parse import urlsplit

GUARD_S = 120.0
AT_ONCE = 100
"""Readers that come at the same time."""

FRAME, HEARTBEAT = b"id: ", b": hb"


class Reader(asyncio.Protocol):
    def __init__(self, audience: "Audience", request: bytes) -> None:
        self._audience = audience
        self._request = request
        self._cut = b""
        self._is_there = asyncio.get_running_loop().create_future()
        self.frames = self.goal = 0

    async def is_there(self) -> None:
        """Until the answer has begun."""
        await self._is_there

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self.transport.write(self._request)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._is_there.done():
            self._is_there.set_exception(ConnectionError("the server closed the connection"))

    def data_received(self, data: bytes) -> None:
        piece = self._cut + data
        self._cut = piece[-len(FRAME) + 1 :]
        if not self._is_there.done() and HEARTBEAT in piece:
            self._is_there.set_result(None)
        came = piece.count(FRAME)
        if came:
            self.frames += came
            self._audience.heard(self)


class Audience:
    """The readers of one or many streams, in the order of their paths. `had_it_s`: when the last one that was missing
    had what it was to have, on the clock of `time.perf_counter`.
    """

    def __init__(self) -> None:
        self.readers: list[Reader] = []
        self.had_it_s = 0.0
        self._missing = 0
        self._have_it = asyncio.Event()

    def expect(self, readers: Sequence[Reader], frames: int) -> None:
        """Each of these is to have so many more than it has."""
        self._missing = len(readers)
        self._have_it.clear()
        for reader in readers:
            reader.goal = reader.frames + frames

    async def have_it(self) -> None:
        async with asyncio.timeout(GUARD_S):
            await self._have_it.wait()

    def heard(self, reader: Reader) -> None:
        if reader.frames == reader.goal:
            self._missing -= 1
            if not self._missing:
                self.had_it_s = time.perf_counter()
                self._have_it.set()

    def leave(self) -> None:
        for reader in self.readers:
            reader.transport.abort()


@contextlib.asynccontextmanager
async def listening(base_url: str, paths: Sequence[str]) -> AsyncIterator[Audience]:
    """A reader for each path, until the block ends."""
    url, audience, loop = urlsplit(base_url), Audience(), asyncio.get_running_loop()

    async def come(path: str) -> Reader:
        request = f"GET {path} HTTP/1.1\r\nhost: {url.netloc}\r\n\r\n".encode()
        _, reader = await loop.create_connection(lambda: Reader(audience, request), url.hostname, url.port)
        await reader.is_there()
        return reader

    try:
        for first in range(0, len(paths), AT_ONCE):
            audience.readers += await asyncio.gather(*(come(path) for path in paths[first : first + AT_ONCE]))
        yield audience
    finally:
        audience.leave()
