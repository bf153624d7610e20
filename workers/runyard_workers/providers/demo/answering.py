"""Answers in text: from the results of tools, or without any."""

import json
from collections.abc import Iterable
from typing import Any

_ITEMS_MAX = 5
_LINE_MAX = 240
_TEXT_MAX = 900
_HEADLINES = ("title", "name", "label", "subject", "heading", "path", "id")
NOTICE = "I am Runyard's demo model: with ANTHROPIC_API_KEY set, a real one answers."


def answer_from_results(results: list[dict[str, Any]], names: dict[str, str]) -> str:
    """`results` are `tool_result` blocks, `names` the tools' names by the ids of their calls."""
    parts = [_result(block, names.get(block["tool_use_id"], "the tool")) for block in results]
    return "\n\n".join([*parts, NOTICE])


def answer_alone(text: str, tools: list[dict[str, Any]]) -> str:
    if not text:
        return f"There is no text to answer. {NOTICE}"
    quoted = _short(text, _LINE_MAX)
    if tools:
        names = ", ".join(f"`{tool['name']}`" for tool in tools)
        return f"You wrote: “{quoted}” I could not make up arguments for {names}, so I called no tool. {NOTICE}"
    return f"You wrote: “{quoted}” This agent has no tools that I could call for you. {NOTICE}"


def _result(block: dict[str, Any], name: str) -> str:
    text = _text_of(block.get("content"))
    if block.get("is_error"):
        return f"`{name}` failed: {_short(text, _LINE_MAX)}"
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = text
    return _sentences(value, name)


def _text_of(content: Any) -> str:
    if isinstance(content, list):
        return "\n".join(block.get("text", f"({block.get('type')})") for block in content)
    return content or ""


def _sentences(value: Any, name: str) -> str:
    match value:
        case None | str() | list() | dict() if not value:
            return f"`{name}` gave no result."
        case list():
            return f"`{name}` gave {len(value)} results:\n\n{_lines(map(_item, value), len(value))}"
        case dict() if len(value) == 1 and isinstance(inner := next(iter(value.values())), (list, dict)):
            return _sentences(inner, name)
        case dict():
            lines = [f"**{_spaced(key)}**: {_inline(part)}" for key, part in value.items()]
            return f"`{name}` gave:\n\n{_lines(lines, len(lines))}"
        case str() if "\n" in value or len(value) > _LINE_MAX:
            return f"`{name}` gave:\n\n{_short(value, _TEXT_MAX)}"
        case _:
            return f"`{name}` gave {_inline(value)}."


def _lines(lines: Iterable[str], count: int) -> str:
    shown = [f"- {line}" for line, _ in zip(lines, range(_ITEMS_MAX), strict=False)]
    if count > _ITEMS_MAX:
        shown.append(f"- and {count - _ITEMS_MAX} more")
    return "\n".join(shown)


def _item(value: Any) -> str:
    if not isinstance(value, dict):
        return _inline(value)
    headline = next((key for key in _HEADLINES if isinstance(value.get(key), str) and value[key]), None)
    rest = "; ".join(f"{_spaced(key)}: {_inline(part)}" for key, part in value.items() if key != headline)
    return _short(f"**{value[headline]}** {rest}".strip() if headline else rest, 2 * _LINE_MAX)


def _inline(value: Any) -> str:
    match value:
        case str():
            return _short(" ".join(value.split()), _LINE_MAX)
        case bool() | None:
            return {True: "yes", False: "no", None: "none"}[value]
        case float():
            return f"{value:.6g}"
        case list() if all(isinstance(part, (str, int, float)) for part in value):
            return _short(", ".join(map(_inline, value)) or "none", _LINE_MAX)
        case list() | dict():
            return _short(json.dumps(value, ensure_ascii=False), _LINE_MAX)
        case _:
            return str(value)


def _spaced(key: str) -> str:
    return key.replace("_", " ")


def _short(text: str, limit: int) -> str:
    """Whole words, then an ellipsis."""
    text = text.strip()
    if len(text) <= limit:
        return text
    cut = text[:limit]
    return (cut.rsplit(None, 1)[0] if " " in cut[limit // 2 :] else cut) + " …"
