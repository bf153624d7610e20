"""HTTP/1.x by hand, for what a client library hides: connections kept alive, chunks, protocol versions."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

GUARD_S = 30.0


@dataclass(frozen=True, kw_only=True)
class Head:
    version: str
    status: int
    headers: dict[str, str]
    """Names in lower case."""


class Wire:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def send(self, request_line: str, headers: dict[str, str], body: bytes = b"") -> None:
        lines = [request_line, *(f"{name}: {value}" for name, value in headers.items())]
        if body:
            lines.append(f"Content-Length: {len(body)}")
        self._writer.write("\r\n".join([*lines, "", ""]).encode() + body)
        await self._writer.drain()

    async def send_raw(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    async def head(self, *, guard_s: float = GUARD_S) -> Head:
        async with asyncio.timeout(guard_s):
            lines = (await self._reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        version, status, _ = lines[0].split(" ", 2)
        pairs = (line.partition(":") for line in lines[1:] if line)
        return Head(
            version=version,
            status=int(status),
            headers={name.strip().lower(): value.strip() for name, _, value in pairs},
        )

    async def body(self, head: Head) -> bytes:
        """To its end: by its length or its last chunk, leaving the connection for the next request."""
        async with asyncio.timeout(GUARD_S):
            if head.headers.get("transfer-encoding") == "chunked":
                return b"".join([chunk async for chunk in self.chunks()])
            return await self._reader.readexactly(int(head.headers["content-length"]))

    async def to_the_end(self) -> bytes:
        """All that comes until the server closes the connection."""
        async with asyncio.timeout(GUARD_S):
            return await self._reader.read()

    async def chunks(self) -> AsyncIterator[bytes]:
        while size := int(await self._reader.readuntil(b"\r\n"), 16):
            yield await self._reader.readexactly(size)
            assert await self._reader.readexactly(2) == b"\r\n"
        assert await self._reader.readexactly(2) == b"\r\n"


@asynccontextmanager
async def wire(host: str, port: int) -> AsyncIterator[Wire]:
    reader, writer = await asyncio.open_connection(host, port)
    try:
        yield Wire(reader, writer)
    finally:
        writer.close()
        await writer.wait_closed()
