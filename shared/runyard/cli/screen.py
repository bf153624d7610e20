"""What a person sees of a stream: the answer on stdout, what happens around it on stderr."""

import sys
from typing import Any, Protocol

import orjson

from runyard.cli.gateways import print_json, tell
from runyard.cli.tables import printable
from runyard.client import (
    Committed,
    Ended,
    Event,
    Frame,
    Output,
    Queued,
    Result,
    Status,
    Steered,
    Stream,
    Text,
    Thinking,
    ToolEnd,
    ToolStart,
)

NOTE_MAX = 100
"""The most characters of a call's input, or of an event, in its one line."""


class Screen(Protocol):
    def show(self, frame: Frame, stream: Stream) -> None: ...

    def line(self) -> None:
        """Begin a new line, since something else will be printed."""


class Lines:
    """`--json`: each frame as a line, `{"seq": 3, "event": "tool_start", "data": {...}}`."""

    def show(self, frame: Frame, stream: Stream) -> None:  # noqa: ARG002 - each line stands for itself
        print_json({"seq": frame.seq, "event": frame.event, "data": frame.data})

    def line(self) -> None:
        pass


class Answer:
    """The answer's text, as it comes if stdout is a terminal. Otherwise each of the model's turns is printed once it is
    committed, on lines of its own, so that a file never contains words that were withdrawn.
    """

    def __init__(self, *, live: bool, thinking: bool) -> None:
        """`live`: stdout is a terminal."""
        self._live = live
        self._thinking = thinking
        self._shown = ""
        self._in_line = False
        self._aside: str | None = None

    def show(self, frame: Frame, stream: Stream) -> None:
        match frame:
            case Ended():
                self._write(stream.text, is_last=True)
                self._end_line()
                self._end_aside()
            case Committed(role="assistant"):
                self._write(stream.text)
                if not self._live:
                    self._end_line()
            case Text():
                if self._live:
                    self._write(stream.text)
            case Thinking(text=text):
                if self._thinking:
                    self._say_aside(text, of="thinking")
            case Output(id=call_id, text=text):
                self._say_aside(text, of=call_id or "system")
            case _ if (note := noted(frame)) is not None:
                self.line()
                tell(note)

    def line(self) -> None:
        if self._live:
            self._end_line()
        self._end_aside()

    def _say_aside(self, text: str, *, of: str) -> None:
        """Beside the answer, as it comes. `of`: whose words these are; each begins a line of its own."""
        if self._aside != of:
            self.line()
        if text:
            print(printable(text), end="", file=sys.stderr, flush=True)
            self._aside = None if text.endswith("\n") else of

    def _end_aside(self) -> None:
        if self._aside is not None:
            self._aside = None
            tell("")

    def _write(self, text: str, *, is_last: bool = False) -> None:
        """Print what was not printed yet. Text that is sent again after its withdrawal is not printed twice."""
        if not text.startswith(self._shown):
            if self._shown.startswith(text) and not is_last:
                return
            self.line()
            tell("[withdrawn: the last words above]")
            self._shown = _common(text, self._shown)
        piece, self._shown = text[len(self._shown) :], text
        if piece:
            self._end_aside()
            print(printable(piece) if self._live else piece, end="", flush=True)
            self._in_line = not piece.endswith("\n")

    def _end_line(self) -> None:
        if self._in_line:
            print(flush=True)
            self._in_line = False


def noted(frame: Frame) -> str | None:
    """One line about what happens besides the answer; None: nothing that a person needs to see."""
    note: str | None = None
    match frame:
        case ToolStart(name=name, input=given):
            note = f"> {name} {_short(given)}"
        case ToolEnd(name=name, is_error=is_error, duration_ms=duration_ms):
            took = "" if duration_ms is None else f" {duration_ms} ms"
            note = f"< {name}{' failed,' if is_error else ''}{took}"
        case Queued():
            note = "* the run is at work, and reads this at its next step"
        case Steered():
            note = "* what was sent meanwhile is read"
        case Status():
            note = _status(frame)
        case Event(event=event, data=data):
            note = f"* {event} {_short(data)}"
    return note


def summary(result: Result) -> str:
    """`completed: 2 steps, 1200 tokens in, 56 out (run_...)`; of a failure, why."""
    why = "" if result.error is None else f": {result.error.message} ({result.error.code})"
    used = result.usage
    tokens = f", {used.get('input_tokens', 0)} tokens in, {used.get('output_tokens', 0)} out" if used else ""
    return f"{result.status}{why}: {result.steps} steps{tokens} ({result.run_id})"


_WAIT_REASONS = {
    "no_worker": ": no living worker has this agent",
    "agent_limit": ": the agent's limit of runs at once is reached",
    "tenant_limit": ": the tenant's limit of runs at once is reached",
    "user_limit": ": the user's limit of runs at once is reached",
}


def _status(frame: Status) -> str | None:
    data: dict[str, Any] = frame.data
    if "trimmed" in data:
        return f"* frames {data['trimmed'].get('fromSeq')} to {data['trimmed'].get('toSeq')} are no longer kept"
    match frame.status:
        case "retrying":
            return f"* the model is asked again in {data.get('waitMs', 0) / 1000:.1f} s"
        case "queued":
            place = "" if frame.position is None else f", number {frame.position} in line"
            reason = "" if frame.wait_reason is None else _WAIT_REASONS.get(frame.wait_reason, "")
            return f"* waiting for a worker{place}{reason}"
    return None


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else orjson.dumps(value).decode()
    line = " ".join(text.split())
    return line if len(line) <= NOTE_MAX else f"{line[: NOTE_MAX - 1]}\N{HORIZONTAL ELLIPSIS}"


def _common(one: str, other: str) -> str:
    """How both begin."""
    length = next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
    return one[:length]
