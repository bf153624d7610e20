"""The script of one answer: blocks, acts between them, and how it stops; in Python, or as JSON over HTTP.

`Script.model_dump_json` and `Script.model_validate_json` are the JSON form: each step names its `kind`, what has a
default may be left out. Tests write scripts with the verbs of `verbs.py`.
"""

from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

StopReason = Literal[
    "end_turn",
    "max_tokens",
    "stop_sequence",
    "tool_use",
    "pause_turn",
    "refusal",
    "model_context_window_exceeded",
]


class Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, ser_json_bytes="base64", val_json_bytes="base64")


# Acts: what happens between two events, or between two bytes -----------------------------------------------------


class Hold(Part):
    """Nothing more until the gate lets this answer pass; with `ping_ms`, a ping event every so many milliseconds."""

    kind: Literal["hold"] = "hold"
    gate: str
    ping_ms: float | None = None


class Pause(Part):
    """Time passes. The pauses of one answer add up on a fixed schedule, so that slow writes do not stretch them."""

    kind: Literal["pause"] = "pause"
    ms: float


class Event(Part):
    """Any event: a ping, one that no client knows, or a known one out of its place."""

    kind: Literal["event"] = "event"
    name: str
    data: Any


class Raw(Part):
    """Bytes of the body as they are (base64 in JSON)."""

    kind: Literal["raw"] = "raw"
    data: bytes


class Fail(Part):
    """An error event inside the 200; the body ends after it, as the API's does."""

    kind: Literal["fail"] = "fail"
    type: str = "overloaded_error"
    message: str = "Overloaded"


class CutHow(StrEnum):
    END = "end"  # the body ends politely, whatever is missing from the message
    CLOSE = "close"  # the connection closes in mid-body (FIN)
    RESET = "reset"  # the same with a RST


class Cut(Part):
    kind: Literal["cut"] = "cut"
    how: CutHow = CutHow.CLOSE


Act = Annotated[Hold | Pause | Event | Raw | Fail | Cut, Field(discriminator="kind")]
Delta = str | Act
"""Inside a block: a piece of its text or JSON, or an act between two pieces."""


# Blocks ----------------------------------------------------------------------------------------------------------


class Text(Part):
    kind: Literal["text"] = "text"
    deltas: tuple[Delta, ...] = ()
    citations: tuple[dict[str, Any], ...] = ()


class Thinking(Part):
    """`signature` in the pieces it is sent in; None: one made up, as unique as a real one."""

    kind: Literal["thinking"] = "thinking"
    deltas: tuple[Delta, ...] = ()
    signature: tuple[str, ...] | None = None


class RedactedThinking(Part):
    kind: Literal["redacted_thinking"] = "redacted_thinking"
    data: str | None = None


class ToolUse(Part):
    """A call of a client's tool, or of Anthropic's own (`server`).

    `deltas` None: the JSON of `input` as the API sends it (a first empty piece, then the rest in three). Given: these
    pieces and no others, whole or broken. `at_start`: the input stands in content_block_start, no piece follows.
    """

    kind: Literal["tool_use"] = "tool_use"
    name: str
    input: dict[str, Any] = Field(default_factory=dict)
    id: str | None = None
    deltas: tuple[Delta, ...] | None = None
    at_start: bool = False
    server: bool = False


class ServerToolResult(Part):
    """What Anthropic's tool found. `tool_use_id` None: the last server call of this answer."""

    kind: Literal["server_tool_result"] = "server_tool_result"
    type: str = "web_search_tool_result"
    content: tuple[dict[str, Any], ...] | dict[str, Any] = ()
    tool_use_id: str | None = None


Step = Annotated[
    Text | Thinking | RedactedThinking | ToolUse | ServerToolResult | Hold | Pause | Event | Raw | Fail | Cut,
    Field(discriminator="kind"),
]


# The answer ------------------------------------------------------------------------------------------------------


class Usage(Part):
    """Token counts of message_start and of each message_delta (cumulative; null and absent counts go out as given)."""

    start: dict[str, Any] = Field(
        default_factory=lambda: {
            "input_tokens": 10,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 0,
            "output_tokens": 1,
        }
    )
    deltas: tuple[dict[str, Any], ...] = Field(default=({"output_tokens": 5},), min_length=1)


class HttpError(Part):
    """An answer that never becomes a stream."""

    status: int
    type: str | None = None
    message: str | None = None
    headers: dict[str, str] = Field(default_factory=dict)


class AtEvent(Part):
    """`event`: the n-th event of the message (from 0; negative from the end), a name (its first), "head", "end"."""

    event: int | str
    acts: tuple[Act, ...]


class AtByte(Part):
    """Before this byte of the body (from 0)."""

    byte: int
    acts: tuple[Act, ...]


class Script(Part):
    steps: tuple[Step, ...] = ()
    stop_reason: StopReason | None = None
    stop_sequence: str | None = None
    stop_details: dict[str, Any] | None = None
    usage: Usage = Usage()
    error: HttpError | None = None
    at_events: tuple[AtEvent, ...] = ()
    at_bytes: tuple[AtByte, ...] = ()
    delta_gate: str | None = None
    piece_bytes: int | None = Field(default=None, ge=1)

    @property
    def stops_with(self) -> StopReason:
        """`stop_reason`, or what follows from the blocks."""
        if self.stop_reason is not None:
            return self.stop_reason
        calls = any(isinstance(step, ToolUse) and not step.server for step in self.steps)
        return "tool_use" if calls else "end_turn"
