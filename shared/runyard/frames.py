"""Frames: the units of output of one invocation, in the order of their sequence numbers.

A frame is stored as a Redis stream entry `<seq>-0` with the fields `e` (event; absent for answer text) and `d` (data,
UTF-8: answer text and thinking as they are, everything else JSON). Sequence numbers begin at 1, the terminal frame is
counted too.
"""

from enum import StrEnum
from typing import Any, NamedTuple

import orjson


class FrameEvent(StrEnum):
    """The events that the system itself writes; an author's `ctx.stream.event` may use any other name."""

    TEXT = "text"  # answer text as a JSON string, where it cannot go as it is: see `text_payload`
    THINKING = "thinking"
    TOOL_START = "tool_start"
    TOOL = "tool"
    OUTPUT = "output"
    PENDING = "pending"
    DECIDED = "decided"
    MESSAGE = "message"
    STEERED = "steered"
    AGENT = "agent"
    STATUS = "status"
    REWIND = "rewind"
    QUEUED = "queued"
    RESULT = "result"
    ERROR = "error"


RESERVED_EVENTS = frozenset(FrameEvent)
TERMINAL_EVENTS = frozenset({FrameEvent.RESULT, FrameEvent.ERROR})

FRAME_OVERHEAD_BYTES = 96
"""Added to each frame's size, so that a flood of tiny frames is bounded as well as a few large ones."""


ROW_ANNOUNCED = '{"seq":'
"""What the data of a `message` frame begins with: see docs/adr/0006-message-for-event-source.md."""


class Payload(NamedTuple):
    """A frame before it has its number: what a writer hands to the flusher."""

    event: str | None
    data: bytes


class Frame(NamedTuple):
    seq: int
    event: str | None
    data: bytes

    @property
    def is_terminal(self) -> bool:
        return self.event in TERMINAL_EVENTS


def cost_bytes(event: str | None, data: bytes) -> int:
    """What a frame counts against its stream's byte budget."""
    return len(data) + len(event or "") + FRAME_OVERHEAD_BYTES


def text_payload(text: str) -> Payload:
    """Answer text; `text` must be clean (`runyard.text`) and not empty.

    It has an event of its own where SSE would end a line in it, and where a browser's EventSource, which calls events
    without a name "message", would take it for the announcement of a row.
    """
    if "\r" in text or text.startswith(ROW_ANNOUNCED):
        return Payload(FrameEvent.TEXT, orjson.dumps(text))
    return Payload(None, text.encode())


def thinking_payload(text: str) -> Payload:
    """Reasoning text. A CR, at which SSE would end the line, becomes LF: the stored block keeps it."""
    return Payload(FrameEvent.THINKING, text.replace("\r\n", "\n").replace("\r", "\n").encode())


def event_payload(event: str, data: Any) -> Payload:
    """A typed frame; `data` must be JSON values only, clean (`runyard.text`)."""
    return Payload(event, orjson.dumps(data))


def answer_text(event: str | None, data: bytes) -> str | None:
    """The answer text that a frame carries, None when it is not answer text."""
    if event is None:
        return data.decode()
    if event == FrameEvent.TEXT:
        text: str = orjson.loads(data)
        return text
    return None
