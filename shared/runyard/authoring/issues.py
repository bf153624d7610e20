"""What is wrong with a decoded JSON value, in words that a model can act on, by the path of the place.

`filter.tags.0: expected string, got number`
"""

from collections.abc import Iterable
from typing import Any

from pydantic import ValidationError

from runyard.authoring.schema import json_type

_MAX_ISSUES = 10
_MAX_MESSAGE_CHARS = 200

_EXPECTED = {
    "string_type": "string",
    "int_type": "integer",
    "float_type": "number",
    "bool_type": "boolean",
    "none_required": "null",
    "list_type": "array",
    "tuple_type": "array",
    "set_type": "array",
    "frozen_set_type": "array",
    "dict_type": "object",
    "mapping_type": "object",
    "model_type": "object",
    "model_attributes_type": "object",
    "dataclass_type": "object",
}
_MISSING = frozenset({"missing", "missing_argument", "missing_keyword_only_argument"})
_UNKNOWN = frozenset({"extra_forbidden", "unexpected_keyword_argument"})


def find_issues(error: ValidationError, value: Any) -> dict[str, str]:
    """Path -> its issue, in the order of the error; `value` is what was validated.

    The branches of a union that fail at one place are one issue: `expected integer or string, got array`.
    """
    expected: dict[str, list[str]] = {}
    issues: dict[str, str] = {}
    for item in error.errors(include_url=False, include_context=False):
        kind = item["type"]
        path = _path(item["loc"], value, names_absent_key=kind in _MISSING)
        if kind in _EXPECTED:
            names = expected.setdefault(path, [])
            if _EXPECTED[kind] not in names:
                names.append(_EXPECTED[kind])
            issues[path] = mismatch(path, names, item["input"])
        elif kind in _MISSING:
            issues[path] = missing(path)
        elif kind in _UNKNOWN:
            issues[path] = unknown(path)
        else:
            issues.setdefault(path, _at(path, _sentence(item["msg"])))
    return issues


def mismatch(path: str, expected: Iterable[str], value: Any) -> str:
    got = json_type(value)
    return _at(path, f"expected {' or '.join(expected)}, got {'number' if got == 'integer' else got}")


def missing(path: str, expected: Iterable[str] = ()) -> str:
    names = " or ".join(expected)
    return f'Missing required field "{path}"' + (f" (type: {names})" if names else "")


def unknown(path: str) -> str:
    return f'Unknown field "{path}"'


def as_text(issues: dict[str, str]) -> str:
    """The first issues, joined by `; `."""
    shown = list(issues.values())[:_MAX_ISSUES]
    if len(issues) > _MAX_ISSUES:
        shown.append(f"and {len(issues) - _MAX_ISSUES} more")
    return "; ".join(shown)


def _path(location: tuple[int | str, ...], value: Any, *, names_absent_key: bool) -> str:
    """Keys and indexes only: pydantic's location also holds names of union branches, which nobody sent.

    A branch may be called like a key beside it (a block of type "text" has a "text"); then what comes next decides.
    """
    steps = list(location[:-1] if names_absent_key else location)
    path: list[str] = []
    for step, following in zip(steps, [*steps, None][1:], strict=True):
        if not _has(value, step):
            continue
        child = value[step]
        leads_on = isinstance(child, dict | list)
        if not leads_on and (names_absent_key or _has(value, following)):
            continue
        path.append(str(step))
        value = child
    if names_absent_key:
        path.append(str(location[-1]))
    return ".".join(path)


def _has(value: Any, step: int | str | None) -> bool:
    match value:
        case dict():
            return step in value
        case list():
            return isinstance(step, int) and 0 <= step < len(value)
    return False


def _at(path: str, text: str) -> str:
    return f"{path}: {text}" if path else text


def _sentence(message: str) -> str:
    """Pydantic's own sentence; an author's validator may have put anything into it, at any length."""
    for prefix in ("Value error, ", "Assertion failed, "):
        message = message.removeprefix(prefix)
    if message.startswith("Input should be "):
        message = f"must be {message.removeprefix('Input should be ')}"
    return message if len(message) <= _MAX_MESSAGE_CHARS else f"{message[:_MAX_MESSAGE_CHARS]}..."
