"""The SSE encoder against a reader written from the specification, and the response around it."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import hypothesis
import orjson
import pytest
from hypothesis import strategies as st
from tests.clients.sse import Event, EventStreamParser

from runyard.errors import StreamGone
from runyard.frames import Frame, answer_text, event_payload, text_payload, thinking_payload
from runyard_gateway.sse import HEARTBEAT, Chunk, encode, encode_error, retry_line, stream_sse

pytestmark = pytest.mark.anyio

GUARD_S = 30.0
HOSTILE = [
    "a\r",
    "\nb",
    "c\n",
    "\n\n",
    "\r\n",
    "x\N{LINE SEPARATOR}y",
    "z\N{NEXT LINE}",
    "\x0b",
    "\x0c",
    " leading space",
    "  two",
    "event: result",
    "a\nevent: result\ndata: {}\n\n",
    ": hb",
    "id: 99",
    "retry: 1",
    "\N{ZERO WIDTH NO-BREAK SPACE}",
    "\N{SNOWMAN}\N{GRINNING FACE}",
    "\t",
]


def read(*frames: Frame) -> list[Event]:
    parser = EventStreamParser()
    events = parser.feed(b"".join(map(encode, frames)))
    assert parser.at_rest
    return events


def text_of(event: Event) -> str | None:
    return answer_text(event.type or None, event.data.encode())


# The encoder --------------------------------------------------------------------------------------------------------


def test_answer_text_has_a_number_and_no_event() -> None:
    assert encode(Frame(7, None, b"alpha")) == b"id: 7\ndata: alpha\n\n"


def test_a_typed_frame_names_its_event() -> None:
    assert encode(Frame(7, "tick", b'{"n":1}')) == b'id: 7\nevent: tick\ndata: {"n":1}\n\n'


def test_each_line_of_the_payload_is_a_line_of_data() -> None:
    assert encode(Frame(2, None, b"line1\nline2\n")) == b"id: 2\ndata: line1\ndata: line2\ndata: \n\n"


def test_an_unnumbered_frame_leaves_the_cursor() -> None:
    first, second = read(Frame(3, None, b"a"), Frame(0, "status", b"{}"))
    assert (first.last_event_id, second.id, second.last_event_id) == ("3", None, "3")


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_is_one_event_and_comes_back_as_it_was(text: str) -> None:
    (event,) = read(Frame(1, *text_payload(text)))
    assert text_of(event) == text
    assert event.seq == 1


def test_hostile_texts_in_a_row_come_back_as_they_were() -> None:
    events = read(*(Frame(seq, *text_payload(text)) for seq, text in enumerate(HOSTILE, 1)))
    assert "".join(text_of(event) or "" for event in events) == "".join(HOSTILE)


@hypothesis.given(
    texts=st.lists(st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from("\r\n: "), min_size=1))
)
def test_any_text_comes_back_as_it_was(texts: list[str]) -> None:
    events = read(*(Frame(seq, *text_payload(text)) for seq, text in enumerate(texts, 1)))
    assert [text_of(event) for event in events] == texts
    assert [event.seq for event in events] == list(range(1, len(texts) + 1))


def test_json_with_line_ends_comes_back_as_it_was() -> None:
    data = {"text": "a\r\nb\N{LINE SEPARATOR}", "isError": False}
    (event,) = read(Frame(1, *event_payload("output", data)))
    assert (event.type, orjson.loads(event.data)) == ("output", data)


def test_thinking_keeps_its_lines() -> None:
    (event,) = read(Frame(1, *thinking_payload("hm\r\nhm\n")))
    assert (event.type, event.data) == ("thinking", "hm\nhm\n")


def test_a_raw_cr_can_not_inject_a_field() -> None:
    events = read(Frame(1, None, b"a\revent: result\r\rdata: {}\r\n"))
    assert [(event.type, event.seq) for event in events] == [("", 1)]


def test_empty_data_is_still_an_event() -> None:
    assert [(event.type, event.data) for event in read(Frame(1, None, b""))] == [("", "")]


def test_an_error_is_told_without_a_number() -> None:
    error = StreamGone("too late", oldestSeq=12)
    (event,) = EventStreamParser().feed(encode_error(error, "req_1"))
    assert (event.type, event.id) == ("error", None)
    assert orjson.loads(event.data) == error.body("req_1")


def test_the_retry_line_spreads_clients() -> None:
    parser = EventStreamParser()
    for _ in range(50):
        assert parser.feed(retry_line()) == []
    assert len(set(parser.retries_ms)) > 10
    assert all(500 <= delay_ms <= 5000 for delay_ms in parser.retries_ms)


# The response -------------------------------------------------------------------------------------------------------


class FakeTail:
    """Gives what the test puts in; `asked` holds each pull's cursor."""

    def __init__(self) -> None:
        self.given: asyncio.Queue[Chunk | Exception] = asyncio.Queue()
        self.asked: list[int] = []
        self.timeouts_s: list[float] = []

    async def pull(self, cursor: int, timeout_s: float) -> Chunk:
        self.asked.append(cursor)
        self.timeouts_s.append(timeout_s)
        given = await self.given.get()
        if isinstance(given, Exception):
            raise given
        return given

    def give(self, body: bytes, cursor: int, *, ended: bool = False) -> None:
        self.given.put_nowait(Chunk(body, cursor, ended))

    def interrupt(self) -> None:
        self.give(b"", 0, ended=True)


@dataclass(kw_only=True)
class Exchange:
    tail: FakeTail = field(default_factory=FakeTail)
    sent: asyncio.Queue[dict[str, Any]] = field(default_factory=asyncio.Queue)
    disconnect: asyncio.Event = field(default_factory=asyncio.Event)
    requested: bool = False

    async def receive(self) -> dict[str, Any]:
        if not self.requested:
            self.requested = True
            return {"type": "http.request", "body": b"", "more_body": False}
        await self.disconnect.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        self.sent.put_nowait(message)

    async def next(self) -> dict[str, Any]:
        async with asyncio.timeout(GUARD_S):
            return await self.sent.get()


@contextlib.asynccontextmanager
async def answering(exchange: Exchange, *, method: str = "GET", **options: Any) -> AsyncIterator[asyncio.Task[None]]:
    scope = {"type": "http", "method": method}
    headers = [(b"x-stream-id", b"st_1")]
    answer = asyncio.create_task(
        stream_sse(scope, exchange.receive, exchange.send, exchange.tail, 4, headers=headers, **options)
    )
    yield answer
    async with asyncio.timeout(GUARD_S):
        await asyncio.wait([answer])
    if not answer.cancelled():
        answer.result()


async def test_headers_retry_heartbeat_and_prelude_leave_at_once() -> None:
    exchange = Exchange()
    async with answering(exchange, first=b"event: queued\ndata: {}\n\n"):
        start = await exchange.next()
        assert start["type"] == "http.response.start"
        assert start["status"] == 200
        headers = dict(start["headers"])
        assert headers == {
            b"content-type": b"text/event-stream",
            b"cache-control": b"no-cache",
            b"x-accel-buffering": b"no",
            b"x-stream-id": b"st_1",
        }
        prelude = await exchange.next()
        assert prelude["body"].startswith(b"retry: ")
        assert prelude["body"].endswith(HEARTBEAT + b"event: queued\ndata: {}\n\n")
        assert prelude["more_body"] is True
        exchange.tail.give(b"end", 5, ended=True)


async def test_frames_heartbeats_and_the_end_follow_in_order() -> None:
    exchange = Exchange()
    async with answering(exchange, heartbeat_s=9.0) as answer:
        await exchange.next()
        await exchange.next()
        exchange.tail.give(b"frames 5 and 6", 6)
        assert await exchange.next() == {"type": "http.response.body", "body": b"frames 5 and 6", "more_body": True}
        exchange.tail.give(b"", 6)
        assert await exchange.next() == {"type": "http.response.body", "body": HEARTBEAT, "more_body": True}
        assert not answer.done()
        exchange.tail.give(b"terminal", 7, ended=True)
        assert await exchange.next() == {"type": "http.response.body", "body": b"terminal", "more_body": False}
    assert exchange.tail.asked == [4, 6, 6]
    assert exchange.tail.timeouts_s == [9.0] * 3
    assert exchange.sent.empty()


async def test_a_drained_process_ends_the_answer_without_a_terminal_frame() -> None:
    exchange = Exchange()
    async with answering(exchange):
        await exchange.next()
        await exchange.next()
        exchange.tail.give(b"", 4, ended=True)
        assert await exchange.next() == {"type": "http.response.body", "body": b"", "more_body": False}


async def test_a_reader_that_fell_behind_is_told_in_the_stream() -> None:
    exchange = Exchange()
    async with answering(exchange, request_id="req_1"):
        await exchange.next()
        await exchange.next()
        exchange.tail.given.put_nowait(StreamGone("too late", oldestSeq=12))
        last = await exchange.next()
    assert last["more_body"] is False
    (event,) = EventStreamParser().feed(last["body"])
    assert (event.type, event.id) == ("error", None)
    assert orjson.loads(event.data)["error"]["code"] == "STREAM_GONE"
    assert orjson.loads(event.data)["error"]["oldestSeq"] == 12


async def test_a_disconnect_ends_the_answer_while_nothing_comes() -> None:
    exchange = Exchange()
    tasks_before = asyncio.all_tasks()
    async with answering(exchange):
        await exchange.next()
        await exchange.next()
        exchange.disconnect.set()
    assert asyncio.all_tasks() == tasks_before


async def test_a_cancelled_answer_leaves_no_task() -> None:
    exchange = Exchange()
    tasks_before = asyncio.all_tasks()
    async with answering(exchange) as answer:
        await exchange.next()
        await exchange.next()
        answer.cancel()
        await asyncio.wait([answer], timeout=GUARD_S)
        assert answer.cancelled()
        await asyncio.sleep(0)  # the loop's turn in which the reader of disconnects is cancelled
        assert asyncio.all_tasks() == tasks_before


async def test_a_head_request_gets_the_headers_alone() -> None:
    exchange = Exchange()
    async with answering(exchange, method="HEAD"):
        assert (await exchange.next())["status"] == 200
        assert await exchange.next() == {"type": "http.response.body", "body": b""}
    assert exchange.tail.asked == []
