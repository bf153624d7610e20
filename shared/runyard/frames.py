"""Frames: the units of output of one invocation, in the order of their sequence numbers.

A frame is stored as a Redis stream entry `<seq>-0` with the fields `e` (event; absent for answer text) and `d` (data in
UTF-8: answer text and thinking as they are, everything else as JSON). Sequence numbers begin at 1 and include the
terminal frame.
"""

from enum import StrEnum
from typing import Any, NamedTuple

import orjson


class FrameEvent(StrEnum):
    """The events that the system itself writes. An author's `ctx.stream.event` may use any other name.

    Nothing writes `pending`, `decided` and `agent` yet: they are kept for approvals and delegates, which are not built.
    """

    TEXT = "text"  # answer text as a JSON string, if it cannot be sent as it is: see `text_payload`
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
"""Added to the size of each frame, so that a flood of tiny frames is bounded like a few large ones."""


ROW_ANNOUNCED = '{"seq":'
"""How the data of a `message` frame begins: see docs/adr/0006-message-for-event-source.md."""


class Payload(NamedTuple):
    """A frame before it has its number, as a writer hands it to the flusher."""

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
    """How much a frame counts against the byte budget of its stream."""
    return len(data) + len(event or "") + FRAME_OVERHEAD_BYTES


def text_payload(text: str) -> Payload:
    """Answer text; `text` must be clean (`runyard.text`) and not empty.

    It gets an event of its own if SSE would end a line inside it, or if a browser's EventSource, which calls events
    without a name "message", would take it for the announcement of a row.
    """
    if "\r" in text or text.startswith(ROW_ANNOUNCED):
        return Payload(FrameEvent.TEXT, orjson.dumps(text))
    return Payload(None, text.encode())


def thinking_payload(text: str) -> Payload:
    """Reasoning text. A CR, at which SSE would end the line, becomes LF; the stored block keeps the CR."""
    return Payload(FrameEvent.THINKING, text.replace("\r\n", "\n").replace("\r", "\n").encode())


def event_payload(event: str, data: Any) -> Payload:
    """A typed frame; `data` must consist of clean JSON values (`runyard.text`)."""
    return Payload(event, orjson.dumps(data))


def answer_text(event: str | None, data: bytes) -> str | None:
    """The answer text in a frame; None: it is another kind of frame."""
    if event is None:
        return data.decode()
    if event == FrameEvent.TEXT:
        text: str = orjson.loads(data)
        return text
    return None
