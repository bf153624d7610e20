"""When a connection is given up: by a clock that the test turns, on a transport that keeps what is written."""

import asyncio
import json
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import uvicorn
from starlette.types import Receive, Scope, Send
from uvicorn.server import ServerState

from runyard_gateway.http_protocol import HttpProtocol
from runyard_gateway.reception import GRACE_S, HEAD_MAX_BYTES, MIN_RATE

HEAD = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n"
WHOLE = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
KEEP_ALIVE_S = 75


class Timer:
    def __init__(self, at_s: float, call: Callable[[], None]) -> None:
        self.at_s = at_s
        self.call = call
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class Loop:
    """No task runs: what is asked here does not depend on the application."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.timers: list[Timer] = []

    def time(self) -> float:
        return self.now_s

    def call_later(self, delay_s: float, call: Callable[[], None]) -> Timer:
        self.timers.append(Timer(self.now_s + delay_s, call))
        return self.timers[-1]

    def create_task(self, work: Coroutine[Any, Any, None]) -> "asyncio.Future[None]":
        work.close()
        return asyncio.Future()

    def turn_to(self, at_s: float) -> None:
        while due := [timer for timer in self.timers if timer.at_s <= at_s and not timer.cancelled]:
            timer = min(due, key=lambda timer: timer.at_s)
            self.timers.remove(timer)
            self.now_s = max(self.now_s, timer.at_s)
            timer.call()
        self.now_s = at_s


class Socket(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.closed = False

    def write(self, data: Any) -> None:
        self.written += bytes(data)

    def close(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...


class Connection:
    def __init__(self) -> None:
        self.loop = Loop()
        self.socket = Socket()
        config = uvicorn.Config(_app, lifespan="off", log_config=None, ws="none", timeout_keep_alive=KEEP_ALIVE_S)
        self.protocol = HttpProtocol(config, ServerState(), {}, _loop=self.loop)  # type: ignore[arg-type]
        self.protocol.connection_made(self.socket)

    def receive(self, data: bytes) -> None:
        self.protocol.data_received(data)

    @property
    def refusal(self) -> tuple[int, str]:
        head, _, body = self.socket.written.partition(b"\r\n\r\n")
        assert self.socket.closed
        return int(head.split()[1]), json.loads(body)["error"]["code"]


async def _app(scope: Scope, receive: Receive, send: Send) -> None: ...


@pytest.fixture
async def connection() -> Connection:
    return Connection()


pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("begun", [b"G", b"GET / HTTP/1.1\r\nHo", HEAD, HEAD + b"{", b"\r\n"])
async def test_a_request_that_does_not_go_on_is_refused(connection: Connection, begun: bytes) -> None:
    connection.receive(begun)
    connection.loop.turn_to(GRACE_S - 1)
    assert not connection.socket.closed
    connection.loop.turn_to(GRACE_S + len(begun) / MIN_RATE + 1)
    assert connection.refusal == (408, "REQUEST_TIMEOUT")


async def test_one_that_drips_is_refused_and_one_that_flows_is_not(connection: Connection) -> None:
    flowing = Connection()
    for one in (connection, flowing):
        one.receive(HEAD)
    for second in range(1, 60):
        flowing.receive(b"x" * MIN_RATE)
        flowing.loop.turn_to(second)
        if not connection.socket.closed:
            connection.receive(b"x")
            connection.loop.turn_to(second)
    assert connection.refusal == (408, "REQUEST_TIMEOUT")
    assert not flowing.socket.closed


async def test_a_connection_that_never_speaks_is_closed(connection: Connection) -> None:
    connection.loop.turn_to(KEEP_ALIVE_S - 1)
    assert not connection.socket.closed
    connection.loop.turn_to(KEEP_ALIVE_S)
    assert connection.socket.closed


async def test_a_whole_request_is_given_all_the_time_that_its_answer_takes(connection: Connection) -> None:
    connection.receive(WHOLE)
    connection.loop.turn_to(3600)
    connection.receive(b"\r\n")  # old clients end a body so
    connection.loop.turn_to(7200)
    assert not connection.socket.closed


async def test_what_is_refused_behind_a_request_is_not_taken_for_its_answer(connection: Connection) -> None:
    connection.receive(WHOLE + b"no HTTP\r\n\r\n")
    assert connection.socket.closed
    assert connection.socket.written == b""


@pytest.mark.parametrize(
    "endless",
    [
        (b"GET /", b"x"),
        (b"GET / HTTP/1.1\r\nx: ", b"x"),
        (b"GET / HTTP/1.1\r\n", b"x: y\r\n"),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1;", b"x"),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n", b"x: y\r\n"),
        (b"", b"\r\n"),
    ],
    ids=["url", "header", "headers", "extension", "trailers", "nothing"],
)
@pytest.mark.parametrize("size_bytes", [500, 50_000, 500_000])
async def test_a_head_without_end_is_refused(
    connection: Connection, endless: tuple[bytes, bytes], size_bytes: int
) -> None:
    begin, piece = endless
    connection.receive(begin)
    sent_bytes = 0
    while not connection.socket.closed:
        connection.receive(piece * (size_bytes // len(piece)))
        sent_bytes += size_bytes
        assert sent_bytes <= 2 * (HEAD_MAX_BYTES + size_bytes)
    assert connection.refusal == (413, "PAYLOAD_TOO_LARGE")


async def test_heads_that_are_large_enough_are_taken_one_after_the_other(connection: Connection) -> None:
    for _ in range(4):
        connection.receive(b"GET / HTTP/1.1\r\n" + b"x: %b\r\n" % (b"y" * 20_000) * 3 + b"\r\n")
    assert not connection.socket.closed
