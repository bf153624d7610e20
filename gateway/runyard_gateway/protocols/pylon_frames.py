"""A run's frames in the form in which Pylon's clients read them.

    answer text                    no event: the text
    tool                           {"name", "input", "isError"}, when the call has ended
    an event of an author's own    as it is
    result, error                  an agent's result or a function's value; {"code", "message"}
    anything else                  left out

Their clients know no `rewind`. Text that is told again behind one, because a worker took the run over or begins it
anew, is left out as far as the reader has it already; what differs is sent, and the result has the whole.
"""

import asyncio
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import orjson

from runyard.errors import FunctionFailed, InternalError, RunyardError
from runyard.frames import RESERVED_EVENTS, Frame, FrameEvent, answer_text
from runyard_gateway.sse import Chunk, Pulled, decode, encode

NO_USAGE = {"input_tokens": 0, "output_tokens": 0}
_MASKED = {"code": "HANDLER_ERROR", "message": "Internal handler error"}
_CANCELLED = {"code": "CALL_CANCELLED", "message": "The call was cancelled"}


def is_said(frame: Frame) -> bool:
    """Whether Pylon's clients see this frame before the end."""
    return frame.event in {None, FrameEvent.TEXT, FrameEvent.TOOL} or frame.event not in RESERVED_EVENTS


def agent_result(result: dict[str, Any]) -> dict[str, Any]:
    """`{"runId", "text", "steps", "usage": {"input_tokens", "output_tokens"}}`, with `cancelled` if it was."""
    usage = {name: result["usage"].get(name, 0) for name in NO_USAGE}
    value = {"runId": result["runId"], "text": result["text"], "steps": result["steps"], "usage": usage}
    return value | {"cancelled": True} if result.get("cancelled") else value


def ended(result: dict[str, Any], error: dict[str, Any] | None, *, is_function: bool) -> tuple[FrameEvent, Any]:
    """How a settled call is reported: `result` with its value, or `error`. Errors that no author meant to show are
    masked; the run has them.
    """
    if error is not None and error["code"] in {FunctionFailed.code, InternalError.code}:
        return FrameEvent.ERROR, _MASKED
    if error is not None:
        return FrameEvent.ERROR, {"code": error["code"], "message": error["message"]}
    if not is_function:
        return FrameEvent.RESULT, agent_result(result)
    if result.get("cancelled"):
        return FrameEvent.ERROR, _CANCELLED
    return FrameEvent.RESULT, result["output"]


@dataclass(frozen=True, slots=True)
class PylonTail:
    """A tail that speaks Pylon. It skips chunks that hold nothing for its reader."""

    tail: Pulled
    translation: "Translation"

    async def pull(self, cursor: int, timeout_s: float) -> Chunk:
        now = asyncio.get_running_loop().time
        deadline = now() + timeout_s
        while True:
            try:
                body, cursor, is_ended = await self.tail.pull(cursor, max(0.0, deadline - now()))
            except RunyardError as error:
                return Chunk(encode(error_frame(error)), cursor, ended=True)
            told = self.translation.of(decode(body))
            if told or is_ended or now() >= deadline:
                return Chunk(told, cursor, ended=is_ended)

    def interrupt(self) -> None:
        self.tail.interrupt()


class Translation:
    """The translation of one answer, from its first frame on: it knows what its reader has."""

    def __init__(self, *, is_function: bool) -> None:
        self._is_function = is_function
        self._text = _Text()

    def of(self, frames: Iterable[Frame]) -> bytes:
        return b"".join(encode(told) for frame in frames for told in self._one(frame))

    def _one(self, frame: Frame) -> Iterator[Frame]:
        if (text := answer_text(frame.event, frame.data)) is not None:
            if new := self._text.new(frame.seq, text):
                yield Frame(frame.seq, None, new.encode())
        elif frame.event == FrameEvent.REWIND:
            self._text.rewind(orjson.loads(frame.data)["toSeq"])
        elif frame.event == FrameEvent.TOOL:
            call = orjson.loads(frame.data)
            yield _frame(frame.seq, FrameEvent.TOOL, {name: call[name] for name in ("name", "input", "isError")})
        elif frame.is_terminal:
            yield self._end(frame)
        elif frame.event not in RESERVED_EVENTS:
            yield frame

    def _end(self, frame: Frame) -> Frame:
        data = orjson.loads(frame.data)
        error = data["error"] if frame.event == FrameEvent.ERROR else None
        event, value = ended(data, error, is_function=self._is_function)
        return _frame(frame.seq, event, value)


class _Text:
    """The answer text that a reader was sent, and how far into it the stream is now."""

    def __init__(self) -> None:
        self._sent = ""
        self._at = 0
        self._seqs: list[int] = []
        self._ends: list[int] = []

    def new(self, seq: int, text: str) -> str:
        """The part of this text that the reader does not have."""
        again = self._sent[self._at : self._at + len(text)]
        if not text.startswith(again):
            self._sent, again = self._sent[: self._at], ""
        self._sent += text[len(again) :]
        self._at += len(text)
        self._seqs.append(seq)
        self._ends.append(self._at)
        return text[len(again) :]

    def rewind(self, to_seq: int) -> None:
        kept = bisect_right(self._seqs, to_seq)
        del self._seqs[kept:], self._ends[kept:]
        self._at = self._ends[-1] if self._ends else 0


def error_frame(error: RunyardError) -> Frame:
    """Un-numbered: the most that an answer which has begun can still say."""
    return _frame(0, FrameEvent.ERROR, pylon_error(error))


def pylon_error(error: RunyardError) -> dict[str, Any]:
    """`{"code", "message"}`, and for a cursor that is too old `oldestSeq`."""
    told = {"code": error.code, "message": error.message}
    return told | {"oldestSeq": error.fields["oldestSeq"]} if "oldestSeq" in error.fields else told


def _frame(seq: int, event: FrameEvent, value: Any) -> Frame:
    return Frame(seq, event, orjson.dumps(value))
