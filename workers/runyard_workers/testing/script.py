"""What a scripted model does, turn by turn, in a test's words: `h.model.says("I look.").calls("search", q="x")`.

A turn is thoughts, then text, then calls. A part that does not fit that order begins the next turn.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from http import HTTPStatus
from typing import Any

import orjson

from runyard.authoring.tools import Tool
from runyard.blocks import Block
from runyard.runs import FinishReason
from runyard.text import clean_json, clean_text
from runyard_workers.providers.model import Activity, ModelEvent, ModelRequest, TextDelta, ThinkingDelta, Turn, Usage

USAGE = Usage(input_tokens=20, output_tokens=8)
"""The usage of every turn: no tokens are counted."""

STOP_REASONS = frozenset(FinishReason) - {
    FinishReason.TOOL_USE,
    FinishReason.MAX_STEPS,
    FinishReason.CANCELLED,
    FinishReason.ERROR,
}
"""Stop reasons that a model may give for a turn without calls."""

OVERLOADED, OVERLOADED_STATUS = "overloaded_error", 529
"""What a provider says of itself when it has too much to do: https://docs.claude.com/en/api/errors"""

CUT_INPUT = "the output limit (max_tokens) cut the call's input: the call did not run"


class Part(IntEnum):
    """The parts of a turn, in their order."""

    THOUGHTS = 1
    TEXT = 2
    CALLS = 3


@dataclass(kw_only=True)
class ScriptedTurn:
    """What the model gives when it is asked. `last`: the part that was added last. `has_ended`: nothing more can be
    added.
    """

    thoughts: list[str] = field(default_factory=list)
    pieces: list[str] = field(default_factory=list)
    calls: list[tuple[str, Any]] = field(default_factory=list)
    stop_reason: str | None = None
    last: Part | None = None
    has_ended: bool = False

    def takes(self, part: Part) -> bool:
        """Whether this part may be added now."""
        if self.has_ended or self.last is None:
            return not self.has_ended
        return part > self.last or (part is self.last and part is not Part.TEXT)

    def deltas(self) -> Iterator[ModelEvent]:
        yield from map(ThinkingDelta, self.thoughts)
        yield from map(TextDelta, self.pieces)
        yield from (Activity(ping=False) for _ in self.calls)

    def turn(self, model: str, new_call_id: Callable[[], str]) -> Turn:
        """The turn in the form in which a provider gives it."""
        content: list[Block] = [
            {"type": "thinking", "thinking": thought, "signature": "scripted"} for thought in self.thoughts
        ]
        if text := "".join(self.pieces):
            content.append({"type": "text", "text": text})
        uses: list[Block] = [
            {"type": "tool_use", "id": new_call_id(), "name": name, "input": given} for name, given in self.calls
        ]
        broken = {}
        if uses and self.stop_reason == FinishReason.MAX_TOKENS:
            uses[-1]["input"] = {}
            broken = {uses[-1]["id"]: CUT_INPUT}
        return Turn(
            content=content + uses,
            stop_reason=self.stop_reason or (FinishReason.TOOL_USE if uses else FinishReason.END_TURN),
            usage=USAGE,
            model=model,
            broken_inputs=broken,
        )

    def __str__(self) -> str:
        parts = [f"thinks({thought!r:.60})" for thought in self.thoughts]
        parts += [f"says({''.join(self.pieces)!r:.60})"] if self.pieces else []
        parts += [f"calls({name!r}, {given!r:.60})" for name, given in self.calls]
        return ".".join(parts) or "says('')"


@dataclass(frozen=True, kw_only=True)
class Failure:
    """The provider answers with this HTTP status; 200 means that it fails in the middle of a stream."""

    status: int
    kind: str | None
    message: str
    pieces: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"fails(status={self.status})"


@dataclass(frozen=True, kw_only=True)
class Improvised:
    """A turn that the test makes from the request."""

    make: "Callable[[ModelRequest, Script], object]"

    def __str__(self) -> str:
        return f"answers({getattr(self.make, '__name__', self.make)!s:.60})"


Entry = ScriptedTurn | Failure | Improvised


class Script:
    """Adds turns to the end of the model's script."""

    def __init__(self, entries: list[Entry], turn: ScriptedTurn | None = None) -> None:
        self._entries = entries
        self._turn = turn

    def thinks(self, *thoughts: str) -> "Script":
        """Reasoning, before it says or calls something."""
        clean = _clean(thoughts)
        return self._with(Part.THOUGHTS, lambda turn: turn.thoughts.extend(clean))

    def says(self, *pieces: str, stop_reason: str | None = None) -> "Script":
        """Text, as it streams: each piece is one frame. With the calls behind it, it is one turn.

        `stop_reason`: why the turn ends there; `pause_turn`, `stop_sequence`, `model_context_window_exceeded`.
        """
        if stop_reason is not None and stop_reason not in STOP_REASONS:
            raise ValueError(f"stop_reason must be one of {', '.join(sorted(STOP_REASONS))}, not {stop_reason!r}")

        clean = _clean(pieces)

        def add(turn: ScriptedTurn) -> None:
            turn.pieces.extend(clean)
            turn.stop_reason = stop_reason
            turn.has_ended = stop_reason is not None

        return self._with(Part.TEXT, add)

    def calls(self, tool: str | Tool, input: Mapping[str, Any] | None = None, /, **arguments: Any) -> "Script":  # noqa: A002 - the Messages API's word for it
        """Ask for a tool, by its name or as what `@tool` made. Calls behind each other are one turn: they run together.

        A tool that the agent does not have is asked for as well: models do so, too.
        """
        name = tool if isinstance(tool, str) else tool.name
        if input is not None and not isinstance(input, Mapping):
            raise TypeError(f"calls({name!r}): arguments are given by name or in a mapping, not as {input!r:.80}")
        given = clean_json(orjson.loads(orjson.dumps({**(input or {}), **arguments})))
        return self._with(Part.CALLS, lambda turn: turn.calls.append((name, given)))

    def cut(self) -> "Script":
        """The output limit (`max_tokens`) ends this turn here. If it calls tools, the last call is the one that is cut:
        it does not run, and the model is told so.
        """
        if self._turn is None:
            raise ValueError("cut() ends a turn: it stands behind says(...) or calls(...)")
        self._turn.stop_reason, self._turn.has_ended = FinishReason.MAX_TOKENS.value, True
        return self

    def refuses(self, *pieces: str) -> "Script":
        """A turn that ends with the stop reason `refusal`."""
        return Script(self._entries).says(*pieces, stop_reason=FinishReason.REFUSAL.value)

    def fails(
        self,
        status: int = OVERLOADED_STATUS,
        *,
        kind: str | None = None,
        message: str = "",
        saying: str = "",
        times: int = 1,
    ) -> "Script":
        """The provider fails, so many times in a row, each time after the text `saying`.

        A status of 408, 409, 429 or from 500 on is tried again, up to 4 times a model, at once; another one is not.
        Then the agent's fallbacks are asked. `kind`: the error's type in the provider's words. A status of 200 is an
        error in the middle of an answer, which `kind` alone tells apart.
        """
        passing = OVERLOADED if status in (HTTPStatus.OK, OVERLOADED_STATUS) else None
        failure = Failure(status=status, kind=kind or passing, message=message, pieces=_clean([saying]))
        self._entries.extend([failure] * times)
        return Script(self._entries)

    def answers(self, make: "Callable[[ModelRequest, Script], object]") -> "Script":
        """One turn that `make` makes of what the model is asked, when it is asked:

        def next_page(request, turn):
            turn.calls("read", page=last_result(request)["next"])
        """
        self._entries.append(Improvised(make=make))
        return Script(self._entries)

    def _with(self, part: Part, add: Callable[[ScriptedTurn], None]) -> "Script":
        turn = self._turn
        if turn is None or not turn.takes(part):
            turn = ScriptedTurn()
            self._entries.append(turn)
        add(turn)
        turn.last = part
        return Script(self._entries, turn)


def _clean(texts: Sequence[str]) -> tuple[str, ...]:
    """The pieces of a text as a provider streams them, without the empty ones.

    Raises:
        TypeError: one is no text.
    """
    for text in texts:
        if not isinstance(text, str):
            raise TypeError(f"the model says and thinks texts, each an argument of its own: not {text!r:.80}")
    return tuple(clean for text in texts if (clean := clean_text(text)))
