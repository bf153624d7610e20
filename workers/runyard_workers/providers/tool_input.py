"""Reads the input of a tool call, once, when all of its JSON has come."""

import json
from typing import Any, NamedTuple

from runyard.text import clean_json, nests_too_deep

CUT_REASONS = frozenset({"max_tokens", "model_context_window_exceeded"})
"""Stop reasons that end the output wherever it is, in the middle of a call too."""

_UNREADABLE = "not readable JSON: a number is too long or the nesting too deep"


class ToolInput(NamedTuple):
    value: dict[str, Any]
    fault: str | None
    """Why `value` is `{}` although the model sent something else."""


def read_tool_input(text: str) -> ToolInput:
    """JSON text -> clean (`runyard.text`) input.

    The reader is Python's, not orjson: it keeps integers beyond 64 bits and reads lone surrogates, NaN and infinities,
    which the cleaner then makes storable.
    """
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        return ToolInput({}, f"not valid JSON: {error.msg} at character {error.pos}")
    except (ValueError, RecursionError):
        return ToolInput({}, _UNREADABLE)
    if nests_too_deep(value):
        return ToolInput({}, _UNREADABLE)
    if not isinstance(value, dict):
        return ToolInput({}, "no JSON object")
    return ToolInput(clean_json(value), None)


def broken_input_message(*, fault: str | None, cut_by: str | None) -> str:
    """What the model is told instead of a result. `cut_by` is the stop reason that ended the output in this call."""
    match cut_by:
        case None:
            return f"The tool was not called: its input is {fault}. Call it again with one complete JSON object."
        case "max_tokens":
            return (
                "The tool was not called: the output limit (max_tokens) cut this call off before its input was "
                "complete. Call it again with a shorter input, or split the work over several calls."
            )
        case _:
            return f"The tool was not called: the output ended before its input was complete ({cut_by})."
