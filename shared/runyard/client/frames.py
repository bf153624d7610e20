"""Frames as a reader of a stream gets them: one class a kind. docs/client.md tells what each of them means."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import orjson

from runyard.client.answers import Failure, Result
from runyard.client.events import ServerEvent


@dataclass(frozen=True, kw_only=True, slots=True)
class Frame:
    """One unit of output."""

    seq: int | None
    """Its number in the stream. None: a gateway says it beside the stream, and it will not be told again."""

    data: Any = field(repr=False, compare=False)
    """What came: text where the kind is text, else JSON. It may have more than the other fields show."""


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
    """What a tool writes with `ctx.stream.write`. `id`: the call's; None: a system prompt's function wrote it."""

    id: str | None
    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Committed(Frame):
    """A row of the transcript is stored. `row`: its `seq`."""

    row: int
    role: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Steered(Frame):
    """The transcript holds inputs that were sent while the run was at work."""

    input_ids: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Status(Frame):
    """`running`, `retrying`, `queued`; `position`: the call's place among those that wait."""

    status: str
    position: int | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Rewind(Frame):
    """What came after frame `to_seq` is withdrawn: answer text, thinking, calls without an end.

    `length`: how many characters of answer text are left, counted from the invocation's beginning.
    """

    to_seq: int
    length: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Queued(Frame):
    """The input steers an invocation that runs; what follows is that one's stream. `queued`: inputs that wait."""

    run_id: str
    input_id: str | None
    queued: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Ended(Frame):
    """The last frame: the invocation has this result."""

    result: Result


@dataclass(frozen=True, kw_only=True, slots=True)
class Event(Frame):
    """What a tool sends with `ctx.stream.event`, and every kind that this version does not know."""

    name: str


def frame_of(event: ServerEvent) -> Frame:
    """Never fails: what has not the shape of its kind is an `Event` of that name."""
    seq = int(event.id) if event.id is not None and event.id.isascii() and event.id.isdigit() else None
    if event.name is None:
        return Text(seq=seq, data=event.data, text=event.data)
    if event.name == "thinking":
        return Thinking(seq=seq, data=event.data, text=event.data)
    try:
        data = orjson.loads(event.data)
    except ValueError:
        return Event(seq=seq, data=event.data, name=event.name)
    make = _KINDS.get(event.name)
    if make is not None:
        try:
            return make(seq, data)
        except (ValueError, KeyError, TypeError):
            pass
    return Event(seq=seq, data=data, name=event.name)


def _text(seq: int | None, data: Any) -> Frame:
    if not isinstance(data, str):
        raise TypeError("text is a string")
    return Text(seq=seq, data=data, text=data)


def _tool_start(seq: int | None, data: Any) -> Frame:
    return ToolStart(seq=seq, data=data, id=data["id"], name=data["name"], input=data["input"])


def _tool(seq: int | None, data: Any) -> Frame:
    return ToolEnd(
        seq=seq,
        data=data,
        id=data["id"],
        name=data["name"],
        input=data["input"],
        is_error=data["isError"],
        duration_ms=data.get("durationMs"),
    )


def _output(seq: int | None, data: Any) -> Frame:
    return Output(seq=seq, data=data, id=data["id"], text=data["text"])


def _message(seq: int | None, data: Any) -> Frame:
    return Committed(seq=seq, data=data, row=data["seq"], role=data["role"])


def _steered(seq: int | None, data: Any) -> Frame:
    return Steered(seq=seq, data=data, input_ids=tuple(data["inputIds"]))


def _status(seq: int | None, data: Any) -> Frame:
    return Status(seq=seq, data=data, status=data["status"], position=data.get("position"))


def _rewind(seq: int | None, data: Any) -> Frame:
    return Rewind(seq=seq, data=data, to_seq=int(data["toSeq"]), length=int(data["length"]))


def _queued(seq: int | None, data: Any) -> Frame:
    return Queued(seq=seq, data=data, run_id=data["runId"], input_id=data.get("inputId"), queued=data["queued"])


def _result(seq: int | None, data: Any) -> Frame:
    return Ended(seq=seq, data=data, result=Result.model_validate(data))


def _error(seq: int | None, data: Any) -> Frame:
    if seq is None:
        raise ValueError("an error without a number is the connection's: the stream goes on")
    error = data["error"]
    told = {name: value for name, value in error.items() if name in _RESULT_FIELDS}
    failure = {name: value for name, value in error.items() if name not in _RESULT_FIELDS}
    return Ended(seq=seq, data=data, result=Result.model_validate(told | {"error": Failure.model_validate(failure)}))


_RESULT_FIELDS = frozenset(
    {"runId", "invocationId", "streamId", "status", "steps", "usage", "cost", "errors", "unanswered"}
)
"""What the `error` frame tells of the result, beside the error."""

_KINDS: Mapping[str, Callable[[int | None, Any], Frame]] = MappingProxyType(
    {
        "text": _text,
        "tool_start": _tool_start,
        "tool": _tool,
        "output": _output,
        "message": _message,
        "steered": _steered,
        "status": _status,
        "rewind": _rewind,
        "queued": _queued,
        "result": _result,
        "error": _error,
    }
)
