"""An answer whose parameters are in the request, for benchmarks: `standin[deltas=5000,delay_ms=2,steps=2,calls=2]`.

Looked for in the user's last text, then in the model's name; without it, 20 deltas.
"""

import itertools
import re
from typing import Any

from tests.standin.record import Request, text_of
from tests.standin.script import Delta, Part, Pause, Script, Step, Text, ToolUse

DIRECTIVE = re.compile(r"standin\[([^\]]*)\]")
WORDS = ("The quick brown fox ", "jumps over the lazy ", "dog while seven small ", "wizards mix up jugs. ")


class Workload(Part):
    deltas: int = 20  # text deltas of the final answer
    chars: int = 20  # characters of each
    delay_ms: float = 0  # before each
    first_ms: float = 0  # before the first event
    steps: int = 0  # rounds of tool calls before the final answer
    calls: int = 1  # calls in each of them
    tool: str | None = None  # which tool; else all that the request offers, in turn


def workload(request: Request) -> Script:
    """Raises:
    ValidationError: the directive names an unknown parameter or a bad value.
    """
    asked = _directive(request)
    begin: tuple[Step, ...] = (Pause(ms=asked.first_ms),) if asked.first_ms else ()
    if _rounds_done(request) < asked.steps:
        return Script(steps=(*begin, *_calls(asked, request)))
    return Script(steps=(*begin, Text(deltas=_deltas(asked))))


def _directive(request: Request) -> Workload:
    texts = [text_of(message["content"]) for message in request.messages if message.get("role") == "user"]
    found = next((found for text in reversed(texts) if (found := DIRECTIVE.search(text))), None)
    found = found or DIRECTIVE.search(request.model)
    pairs = found[1].split(",") if found and found[1] else []
    return Workload.model_validate(dict(pair.split("=", 1) for pair in pairs))


def _rounds_done(request: Request) -> int:
    """Assistant turns since the user last spoke: an answer to tool results does not begin anew."""
    since = 0
    for message in request.messages:
        if message.get("role") == "assistant":
            since += 1
        elif text_of(message["content"]):
            since = 0
    return since


def _deltas(asked: Workload) -> tuple[Delta, ...]:
    texts = [(word * (asked.chars // len(word) + 1))[: asked.chars] for word in WORDS]
    pieces = itertools.islice(itertools.cycle(texts), asked.deltas)
    if not asked.delay_ms:
        return tuple(pieces)
    pause = Pause(ms=asked.delay_ms)
    return tuple(item for piece in pieces for item in (pause, piece))


def _calls(asked: Workload, request: Request) -> list[Step]:
    tools = [tool for tool in request.tools if "input_schema" in tool and asked.tool in (None, tool["name"])]
    if not tools:
        return []
    chosen = itertools.islice(itertools.cycle(tools), asked.calls)
    return [ToolUse(name=tool["name"], input=fill(tool["input_schema"], tool["input_schema"])) for tool in chosen]


SIMPLEST: dict[str, Any] = {"array": [], "integer": 1, "number": 1, "boolean": True, "null": None}


def fill(schema: Any, root: dict[str, Any]) -> Any:
    """Some value that fits a tool's schema: required properties only, simplest values."""
    match schema:
        case {"const": value} | {"enum": [value, *_]} | {"default": value}:
            filled = value
        case {"$ref": str(reference)}:
            target: Any = root
            for part in reference.split("/")[1:]:
                target = target[part]
            filled = fill(target, root)
        case {"anyOf": [first, *_]} | {"oneOf": [first, *_]} | {"allOf": [first, *_]}:
            filled = fill(first, root)
        case {"type": "object"}:
            properties = schema.get("properties", {})
            filled = {name: fill(properties[name], root) for name in schema.get("required", [])}
        case {"type": "integer" | "number", "minimum": minimum}:
            filled = minimum
        case {"type": str(kind)} if kind in SIMPLEST:
            filled = SIMPLEST[kind]
        case _:
            filled = "pylon"
    return filled
