"""A very cheap HTTP/1.1 client on a raw asyncio transport: one request at a time, kept alive."""

import asyncio
import json
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self, cast
from urllib.parse import urlsplit

import httptools

RUNYARD_TEXT = re.compile(rb"\nid: \d+\ndata: ")
"""A frame of answer text: the one kind that names no event."""

MODEL_TEXT = re.compile(rb'"text_delta"')


@dataclass(frozen=True, kw_only=True)
class Answer:
    """`first_s`: from the request's write to the first text; `total_s`: to the body's end."""

    status: int
    headers: dict[str, str]
    body: bytes
    first_s: float
    total_s: float


class Connection(asyncio.Protocol):
    """One connection. `on_body` of a request is called with the length of the body so far, as it grows."""

    def __init__(self, base_url: str) -> None:
        self._url = urlsplit(base_url)
        self._transport: asyncio.Transport
        self._done: asyncio.Future[Answer] | None = None

    @classmethod
    async def open(cls, base_url: str) -> Self:
        connection = cls(base_url)
        await connection._connect()
        return connection

    async def _connect(self) -> None:
        host, port = self._url.hostname, self._url.port
        assert host is not None
        assert port is not None
        await asyncio.get_running_loop().create_connection(lambda: self, host, port)

    async def post(self, path: str, body: Any, *, text: re.Pattern[bytes], headers: str = "") -> Answer:
        """`text` tells the first text in the body."""
        payload = json.dumps(body).encode()
        length = f"content-type: application/json\r\ncontent-length: {len(payload)}\r\n"
        return await self._send(self._head("POST", path, headers + length) + payload, text, None)

    async def get(self, path: str, *, text: re.Pattern[bytes], headers: str = "") -> Answer:
        return await self._send(self._head("GET", path, headers), text, None)

    async def follow(self, path: str, body: Any, on_body: Callable[[bytes], None], *, headers: str = "") -> Answer:
        """A POST whose body is handed on piece by piece."""
        payload = json.dumps(body).encode()
        length = f"content-type: application/json\r\ncontent-length: {len(payload)}\r\n"
        return await self._send(self._head("POST", path, headers + length) + payload, RUNYARD_TEXT, on_body)

    def close(self) -> None:
        self._transport.close()

    def _head(self, method: str, path: str, headers: str) -> bytes:
        return f"{method} {path} HTTP/1.1\r\nhost: {self._url.netloc}\r\n{headers}\r\n".encode()

    async def _send(self, request: bytes, text: re.Pattern[bytes], on_body: Callable[[bytes], None] | None) -> Answer:
        assert self._done is None, "one request at a time"
        if self._transport.is_closing():  # the server closes what was idle for some seconds
            await self._connect()
        self._done = asyncio.get_running_loop().create_future()
        self._parser = httptools.HttpResponseParser(self)
        self._headers: dict[str, str] = {}
        self._pieces: list[bytes] = []
        self._text, self._first_s, self._on_body = text, 0.0, on_body
        self._began_s = time.perf_counter()
        self._transport.write(request)
        try:
            return await self._done
        finally:
            self._done = None

    # asyncio and httptools call these -----------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is one in all but its ancestors

    def connection_lost(self, exc: Exception | None) -> None:
        if self._done is not None and not self._done.done():
            self._done.set_exception(ConnectionError(f"{self._url.netloc} closed the connection"))

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)
        if not self._first_s and self._text.search(b"".join(self._pieces)):
            self._first_s = time.perf_counter() - self._began_s

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.decode().lower()] = value.decode()

    def on_body(self, body: bytes) -> None:
        self._pieces.append(body)
        if self._on_body is not None:
            self._on_body(body)

    def on_message_complete(self) -> None:
        if self._done is None:
            return  # nobody waits for it any more
        body = b"".join(self._pieces)
        now_s = time.perf_counter() - self._began_s
        if not self._first_s and self._text.search(body):
            self._first_s = now_s
        if not self._done.done():
            self._done.set_result(
                Answer(
                    status=self._parser.get_status_code(),
                    headers=self._headers,
                    body=body,
                    first_s=self._first_s,
                    total_s=now_s,
                )
            )
