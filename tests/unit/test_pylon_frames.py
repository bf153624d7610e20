"""What Pylon's clients are told of a run's frames."""

import asyncio
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runyard.errors import StreamGone
from runyard.frames import Frame, event_payload, text_payload
from runyard_gateway.protocols.pylon_frames import PylonTail, Translation, is_said
from runyard_gateway.sse import Chunk, decode, encode

RESULT = {
    "runId": "run_1",
    "text": "hi",
    "steps": 2,
    "usage": {"input_tokens": 30, "output_tokens": 13, "cache_read_input_tokens": 1},
    "model": "m",
}


def event(seq: int, name: str, data: Any) -> Frame:
    return Frame(seq, *event_payload(name, data))


def text(seq: int, said: str) -> Frame:
    return Frame(seq, *text_payload(said))


def rewind(seq: int, to_seq: int) -> Frame:
    return event(seq, "rewind", {"toSeq": to_seq, "length": 0})


def told(*frames: Frame, is_function: bool = False) -> list[tuple[int, str | None, Any]]:
    body = Translation(is_function=is_function).of(frames)
    return [(it.seq, it.event, orjson.loads(it.data) if it.event else it.data.decode()) for it in decode(body)]


@given(
    st.lists(
        st.builds(
            Frame,
            st.integers(0, 2**53),
            st.none() | st.from_regex(r"[!-9;-~]{1,64}", fullmatch=True),
            st.text(st.characters(exclude_characters="\r", codec="utf-8")).map(str.encode),
        )
    )
)
def test_what_is_encoded_is_decoded(frames: list[Frame]) -> None:
    assert list(decode(b"".join(map(encode, frames)))) == frames


def test_text_has_no_event_and_a_call_is_told_when_it_has_ended() -> None:
    call = {"id": "toolu_1", "name": "lookup", "input": {"q": 1}}
    frames = [
        event(0, "status", {"status": "queued", "position": 3}),
        event(1, "status", {"status": "running"}),
        event(2, "message", {"seq": 1, "role": "user"}),
        event(3, "thinking", "hm"),
        text(4, "Let me\ncheck"),
        event(5, "tool_start", call),
        event(6, "output", {"id": "toolu_1", "text": "looking"}),
        event(7, "progress", [1]),
        event(8, "tool", call | {"isError": False, "durationMs": 3}),
        text(9, "a\rb"),
        event(10, "result", RESULT),
    ]
    usage = {"input_tokens": 30, "output_tokens": 13}
    assert told(*frames) == [
        (4, None, "Let me\ncheck"),
        (7, "progress", [1]),
        (8, "tool", {"name": "lookup", "input": {"q": 1}, "isError": False}),
        (9, None, "a\nb"),
        (10, "result", {"runId": "run_1", "text": "hi", "steps": 2, "usage": usage}),
    ]
    assert [frame.seq for frame in frames if is_said(frame)] == [4, 7, 8, 9]


@pytest.mark.parametrize("value", [None, 5, "text", {"a": [1]}])
def test_a_functions_result_is_its_value(value: Any) -> None:
    assert told(event(3, "result", RESULT | {"output": value}), is_function=True) == [(3, "result", value)]


def test_an_error_is_a_code_and_a_message() -> None:
    failed = event(3, "error", {"error": {"code": "NO", "message": "no", "requestId": "req_1", "runId": "run_1"}})
    assert told(failed) == [(3, "error", {"code": "NO", "message": "no"})]


def test_who_was_cancelled() -> None:
    cancelled = event(3, "result", RESULT | {"cancelled": True})
    ((_, _, value),) = told(cancelled)
    assert value["cancelled"] is True
    ((_, name, error),) = told(cancelled, is_function=True)
    assert (name, error["code"]) == ("error", "CALL_CANCELLED")


@pytest.mark.parametrize(
    ("frames", "sent"),
    [
        ([text(3, "Hello"), rewind(4, 0), text(5, "Hello")], ["Hello"]),
        ([text(3, "Hel"), text(4, "lo"), rewind(5, 0), text(6, "Hello, you")], ["Hel", "lo", ", you"]),
        ([text(3, "Hello"), rewind(4, 0), text(5, "He"), text(6, "llo!")], ["Hello", "!"]),
        (
            [text(3, "One. "), text(4, "Two"), rewind(5, 3), text(6, "Two."), text(7, " End")],
            ["One. ", "Two", ".", " End"],
        ),
        ([text(3, "Yes"), rewind(4, 0), text(5, "No"), text(6, "!")], ["Yes", "No", "!"]),
        ([text(3, "Yes"), rewind(4, 0), text(5, "No"), rewind(6, 0), text(7, "No!")], ["Yes", "No", "!"]),
        ([rewind(1_000_000, 0), text(1_000_001, "all")], ["all"]),
    ],
)
def test_text_that_is_told_again_is_sent_once(frames: list[Frame], sent: list[str]) -> None:
    assert [data for _, _, data in told(*frames)] == sent


class FakeTail:
    def __init__(self, *chunks: Chunk | Exception) -> None:
        self._chunks = list(chunks)

    async def pull(self, cursor: int, timeout_s: float) -> Chunk:
        await asyncio.sleep(0)
        if not self._chunks:
            return Chunk(b"", cursor, ended=False)
        chunk = self._chunks.pop(0)
        if isinstance(chunk, Exception):
            raise chunk
        return chunk

    def interrupt(self) -> None:
        raise AssertionError


@pytest.mark.anyio
async def test_of_what_is_left_out_nothing_is_sent() -> None:
    """An empty chunk would be a heartbeat, and an answer to a call has none."""
    status = Chunk(encode(event(1, "status", {})), 1, ended=False)
    words = Chunk(encode(text(2, "hi")), 2, ended=False)
    tail = PylonTail(FakeTail(status, words), Translation(is_function=False))
    assert await tail.pull(0, 3600) == words


@pytest.mark.anyio
async def test_a_reader_that_fell_behind_is_told_without_a_number() -> None:
    tail = PylonTail(FakeTail(StreamGone("too old", oldestSeq=7)), Translation(is_function=False))
    body, cursor, ended = await tail.pull(3, 3600)
    assert (cursor, ended) == (3, True)
    assert body == b'event: error\ndata: {"code":"STREAM_GONE","message":"too old","oldestSeq":7}\n\n'
