"""How a test says what the model answers: `says("Let me ", "check.").calls("lookup", {"q": "pylon"})`.

An `Answer` is a script under construction; each verb returns a new one. Functions of the same names begin one.
Acts (`hold`, `pause`, `ping`, ...) may stand between the pieces of a block, between blocks (`then`), before any event
(`before`) and before any byte (`at_byte`).
"""

from typing import Any, Self

from tests.standin.script import (
    Act,
    AtByte,
    AtEvent,
    Cut,
    CutHow,
    Delta,
    Event,
    Fail,
    Hold,
    HttpError,
    Pause,
    Raw,
    RedactedThinking,
    Script,
    ServerToolResult,
    Step,
    StopReason,
    Text,
    Thinking,
    ToolUse,
    Usage,
)


class Answer(Script):
    def says(self, *deltas: Delta) -> Self:
        """A text block in these pieces; none: the empty block that the API sometimes streams."""
        return self._and(Text(deltas=deltas))

    def cites(self, *citations: dict[str, Any]) -> Self:
        """Citations at the end of the text block said last."""
        *before, last = self.steps
        if not isinstance(last, Text):
            raise TypeError("cites() follows says()")
        return self._with(steps=(*before, Text(deltas=last.deltas, citations=citations)))

    def thinks(self, *deltas: Delta, signature: tuple[str, ...] | str | None = None) -> Self:
        """A thinking block; no piece at all is what the API sends when thinking is not displayed."""
        pieces = (signature,) if isinstance(signature, str) else signature
        return self._and(Thinking(deltas=deltas, signature=pieces))

    def redacts(self, data: str | None = None) -> Self:
        return self._and(RedactedThinking(data=data))

    def calls(
        self,
        name: str,
        arguments: dict[str, Any] | None = None,
        *,
        deltas: tuple[Delta, ...] | None = None,
        at_start: bool = False,
        call_id: str | None = None,
    ) -> Self:
        """A call of a client's tool; its arguments in the API's pieces, in `deltas`, or whole `at_start`."""
        return self._and(ToolUse(name=name, input=arguments or {}, id=call_id, deltas=deltas, at_start=at_start))

    def searches(self, query: str = "pylon", *, tool: str = "web_search", call_id: str | None = None) -> Self:
        """A call of a tool that Anthropic runs."""
        return self._and(ToolUse(name=tool, input={"query": query}, id=call_id, server=True))

    def finds(self, *results: dict[str, Any], tool: str = "web_search", call_id: str | None = None) -> Self:
        """The result of the server call named, else of the last one of this answer."""
        return self._and(ServerToolResult(type=f"{tool}_tool_result", content=results, tool_use_id=call_id))

    def then(self, *acts: Act) -> Self:
        """Acts after the blocks so far."""
        return self._and(*acts)

    def stops(self, reason: StopReason, *, sequence: str | None = None, details: dict[str, Any] | None = None) -> Self:
        return self._with(stop_reason=reason, stop_sequence=sequence, stop_details=details)

    def uses(self, *deltas: dict[str, Any], start: dict[str, Any]) -> Self:
        """Token counts exactly so: of message_start, then of each message_delta; without one, that has none."""
        return self._with(usage=Usage(start=start, deltas=deltas or ({},)))

    def costs(self, input_tokens: int, output_tokens: int) -> Self:
        """The usual: the input counted at the start, the output at the end."""
        return self.uses(
            {"output_tokens": output_tokens},
            start={
                "input_tokens": input_tokens,
                "cache_creation_input_tokens": 0,
                "cache_read_input_tokens": 0,
                "output_tokens": 1,
            },
        )

    def before(self, event: int | str, *acts: Act) -> Self:
        """Acts before an event, by its number or its name; "head" is the HTTP head, "end" the end of the body."""
        return self._with(at_events=(*self.at_events, AtEvent(event=event, acts=acts)))

    def at_byte(self, byte: int, *acts: Act) -> Self:
        return self._with(at_bytes=(*self.at_bytes, AtByte(byte=byte, acts=acts)))

    def each_delta(self, gate: str) -> Self:
        """Hold at the gate before every delta: the test lets them pass with `gate.advance()`."""
        return self._with(delta_gate=gate)

    def in_pieces(self, size_bytes: int) -> Self:
        """Deliver the body in chunks of this size: 1 splits every character and every line of events."""
        return self._with(piece_bytes=size_bytes)

    def _and(self, *steps: Step) -> Self:
        return self._with(steps=(*self.steps, *steps))

    def _with(self, **changes: Any) -> Self:
        return self.model_copy(update=changes)


silent = Answer()
"""An answer without any block; every other begins with it."""

says = silent.says
thinks = silent.thinks
redacts = silent.redacts
calls = silent.calls
searches = silent.searches
finds = silent.finds


def refuses(
    status: int,
    error_type: str | None = None,
    message: str | None = None,
    *,
    headers: dict[str, str] | None = None,
) -> Answer:
    """An HTTP error in place of an answer: `refuses(429, headers={"retry-after": "1"})`, `refuses(529)`."""
    return Answer(error=HttpError(status=status, type=error_type, message=message, headers=headers or {}))


def hold(gate: str) -> Hold:
    return Hold(gate=gate)


def ping_until(gate: str, *, every_ms: float = 10) -> Hold:
    return Hold(gate=gate, ping_ms=every_ms)


def pause(ms: float) -> Pause:
    return Pause(ms=ms)


def ping() -> Event:
    return Event(name="ping", data={"type": "ping"})


def event(name: str, data: Any) -> Event:
    return Event(name=name, data=data)


def raw(data: bytes) -> Raw:
    return Raw(data=data)


def fail(error_type: str = "overloaded_error", message: str = "Overloaded") -> Fail:
    return Fail(type=error_type, message=message)


def cut(how: CutHow | str = CutHow.CLOSE) -> Cut:
    return Cut(how=CutHow(how))
