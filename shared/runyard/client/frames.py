"""Frames as a stream's reader gets them: one class for each kind. docs/client.md explains them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypedDict

import orjson

from runyard.client.answers import Result
from runyard.client.events import ServerEvent


@dataclass(frozen=True, kw_only=True, slots=True)
class Frame:
    """One unit of output."""

    seq: int | None
    """Its number in the stream. None: the gateway added it for this connection, and it will not be sent again."""

    event: str | None
    """The kind's name on the wire; for answer text None, or "text"."""

    data: Any = field(repr=False)
    """The payload as received: a string for text, else decoded JSON. It may have more than the other fields show."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Text(Frame):
    """A piece of the answer."""

    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Thinking(Frame):
    """A piece of the model's reasoning."""

    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolStart(Frame):
    """A tool call begins."""

    id: str
    name: str
    input: dict[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolEnd(Frame):
    """A tool call has its result."""

    id: str
    name: str
    input: dict[str, Any]
    is_error: bool
    duration_ms: int | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Output(Frame):
    """What a tool wrote with `ctx.stream.write`. `id` is the call's; None: a system prompt function wrote it."""

    id: str | None
    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Committed(Frame):
    """A row of the transcript is stored. `row`: its `seq`."""

    row: int
    role: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Steered(Frame):
    """Input that was sent while the run was working is now in the transcript."""

    input_ids: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Status(Frame):
    """`running`, `retrying` or `queued`, with the call's `position` among those that wait, and `wait_reason`, why its
    turn cannot come (`no_worker`, `agent_limit`, `tenant_limit`, `user_limit`).
    """

    status: str
    position: int | None
    wait_reason: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Rewind(Frame):
    """Everything after frame `to_seq` is withdrawn: answer text, thinking, calls that have not ended.

    `length`: how many characters of answer text remain, counted from the invocation's beginning.
    """

    to_seq: int
    length: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Queued(Frame):
    """The input steers an invocation that is running, whose stream follows. `queued`: how many inputs wait."""

    run_id: str
    input_id: str | None
    queued: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Ended(Frame):
    """The last frame: the invocation has this result."""

    result: Result


@dataclass(frozen=True, kw_only=True, slots=True)
class Event(Frame):
    """What a tool sent with `ctx.stream.event`, or a kind of frame that this version does not know."""


class _Common(TypedDict):
    seq: int | None
    event: str | None
    data: Any


def frame_of(event: ServerEvent) -> Frame:
    """Never fails: what has not the shape of its kind is an `Event`."""
    seq = int(event.id) if event.id is not None and event.id.isascii() and event.id.isdigit() else None
    common = _Common(seq=seq, event=event.name, data=event.data)
    if event.name is None:
        return Text(**common, text=event.data)
    if event.name == "thinking":
        return Thinking(**common, text=event.data)
    try:
        common["data"] = orjson.loads(event.data)
    except ValueError:
        return Event(**common)
    try:
        return _typed(common)
    except (ValueError, KeyError, TypeError):
        return Event(**common)


def _typed(common: _Common) -> Frame:  # noqa: C901, PLR0911 - a case for each kind
    data = common["data"]
    match common["event"]:
        case "text" if isinstance(data, str):
            return Text(**common, text=data)
        case "tool_start":
            return ToolStart(**common, id=data["id"], name=data["name"], input=data["input"])
        case "tool":
            return ToolEnd(
                **common,
                id=data["id"],
                name=data["name"],
                input=data["input"],
                is_error=data["isError"],
                duration_ms=data.get("durationMs"),
            )
        case "output":
            return Output(**common, id=data["id"], text=data["text"])
        case "message":
            return Committed(**common, row=data["seq"], role=data["role"])
        case "steered":
            return Steered(**common, input_ids=tuple(data["inputIds"]))
        case "status":
            return Status(
                **common, status=data["status"], position=data.get("position"), wait_reason=data.get("waitReason")
            )
        case "rewind":
            return Rewind(**common, to_seq=int(data["toSeq"]), length=int(data["length"]))
        case "queued":
            return Queued(**common, run_id=data["runId"], input_id=data.get("inputId"), queued=data["queued"])
        case "result":
            return Ended(**common, result=Result.model_validate(data))
        case "error" if common["seq"] is not None:  # without a number it is the connection's: the stream goes on
            return Ended(**common, result=_failed(data["error"]))
    return Event(**common)


def _failed(error: Mapping[str, Any]) -> Result:
    """The `error` frame tells of the result what is not the error's own."""
    result = {name: value for name, value in error.items() if name in _RESULT_FIELDS}
    failure = {name: value for name, value in error.items() if name not in _RESULT_FIELDS}
    return Result.model_validate({"status": "failed", **result, "error": failure})


_RESULT_FIELDS = frozenset(
    {"runId", "invocationId", "streamId", "status", "steps", "usage", "cost", "errors", "unanswered"}
)
