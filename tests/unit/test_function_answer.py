"""When the answer to a function's caller becomes a stream."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from runyard.frames import Frame, event_payload, text_payload
from runyard_gateway.function_answer import is_functions_own, says_something
from runyard_gateway.sse import Chunk, encode

pytestmark = pytest.mark.anyio

LONG_S = 3600.0
RUNNING = event_payload("status", {"status": "running"})
ROW = event_payload("message", {"seq": 1, "role": "user"})
WITHDRAWN = event_payload("rewind", {"toSeq": 2, "length": 0})
RESULT = event_payload("result", {"output": "data:\n\nevent: ding\n\n"})
FAILED = event_payload("error", {"error": {}})
OWN = event_payload("ding", None)
TEXT = text_payload("hello\n\nevent: status")
TEXT_WITH_CR = text_payload("a\rb")


class FakeTail:
    """Gives its chunks one by one; then nothing comes any more."""

    def __init__(self, *chunks: Sequence[Any]) -> None:
        self._chunks = list(chunks)
        self._interrupted = asyncio.Event()
        self.cursor = 0

    async def pull(self, cursor: int, timeout_s: float) -> Chunk:
        assert cursor == self.cursor
        if not self._chunks:
            await asyncio.wait_for(self._interrupted.wait(), timeout_s)
            return Chunk(b"", cursor, ended=True)
        frames = [Frame(cursor + at, *payload) for at, payload in enumerate(self._chunks.pop(0), 1)]
        self.cursor += len(frames)
        return Chunk(b"".join(map(encode, frames)), self.cursor, ended=any(frame.is_terminal for frame in frames))

    def interrupt(self) -> None:
        self._interrupted.set()


async def never() -> Any:
    await asyncio.Event().wait()


@pytest.mark.parametrize(
    ("chunks", "streams"),
    [
        ([[RUNNING, ROW], [ROW, RESULT]], False),
        ([[RUNNING, ROW, WITHDRAWN, FAILED]], False),
        ([[RUNNING, ROW], [TEXT]], True),
        ([[RUNNING, ROW, TEXT_WITH_CR, ROW, RESULT]], True),
        ([[RUNNING], [OWN]], True),
        ([[RUNNING, TEXT, WITHDRAWN, FAILED]], True),
    ],
    ids=["value", "error", "text", "text and value", "event", "text withdrawn"],
)
async def test_the_first_frames_decide(chunks: Any, streams: bool) -> None:
    async with asyncio.timeout(30):
        assert await says_something(FakeTail(*chunks), never, is_functions_own, silence_s=LONG_S) is streams


async def test_one_that_is_silent_for_long_streams() -> None:
    """No proxy keeps a connection over which nothing comes."""

    class Silent(FakeTail):
        async def pull(self, cursor: int, timeout_s: float) -> Chunk:
            await asyncio.sleep(timeout_s)
            return Chunk(b"", cursor, ended=False)

    assert await says_something(Silent(), never, is_functions_own, silence_s=0.01)


async def test_a_caller_who_has_left_is_not_waited_for() -> None:
    tail = FakeTail([RUNNING])

    async def leave() -> Any:
        return {"type": "http.disconnect"}

    async with asyncio.timeout(30):
        assert await says_something(tail, leave, is_functions_own, silence_s=LONG_S)


async def test_a_stream_that_begins_is_not_interrupted() -> None:
    """By the end of what watched whether the caller leaves before."""
    tail = FakeTail([TEXT])
    others = asyncio.all_tasks()
    assert await says_something(tail, never, is_functions_own, silence_s=LONG_S)
    await asyncio.gather(*(asyncio.all_tasks() - others), return_exceptions=True)
    assert not tail._interrupted.is_set()
