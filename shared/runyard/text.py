"""The one cleaner for text from outside, before it reaches database, stream or model.

PostgreSQL stores no U+0000 in text and no NaN in JSON, UTF-8 encodes no lone surrogates, and orjson reads no integer
beyond 64 bits. All of them come from tools and models, and none may cost a run. Callers who send them are refused
instead (`runyard_gateway.bodies`), since they can still say what they meant.
"""

import math
import re
from typing import Any, TypeGuard

TRUNCATED = "[truncated]"

NAME_MAX = 256
NAME_RULE = f"a name of 1 to {NAME_MAX} printable characters"

_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")

INTEGERS = range(-(2**63), 2**64)
"""The integers that every part can write as a number."""

NESTING_MAX = 100
"""Levels of objects and arrays that every part can write: orjson refuses 255, and the row, the frame or the answer
around a value adds levels of its own."""


def is_clean(text: str) -> bool:
    """Whether `clean_text` would leave the text unchanged."""
    return ("\x00" not in text) if text.isascii() else _UNSTORABLE.search(text) is None


def clean_text(text: str) -> str:
    """Replace NUL and lone surrogates by U+FFFD; everything else stays, including a literal backslash-u0000."""
    if is_clean(text):
        return text
    # A pair of surrogates in a Python string is one character that was split (e.g. by a JSON reader): join it first.
    joined = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return _UNSTORABLE.sub(_REPLACEMENT, joined)


def loses_by_cleaning(text: str) -> bool:
    """Whether `clean_text` would replace a part of it. Two halves of one character that it only joins are no loss."""
    return clean_text(text).count(_REPLACEMENT) > text.count(_REPLACEMENT)


def clean_json(value: Any) -> Any:
    """JSON values from any reader, as strict JSON: keys and strings are clean, NaN and infinities become null.

    Integers beyond 64 bits become decimal strings. If two keys become equal by cleaning, the second wins.
    """
    if isinstance(value, str):
        return clean_text(value)
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return value if value in INTEGERS else str(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, list):
        return [clean_json(item) for item in value]
    if isinstance(value, dict):
        return {clean_text(key): clean_json(item) for key, item in value.items()}
    raise TypeError(f"not a JSON value: {type(value).__name__}")


def nests_too_deep(value: Any, levels: int = NESTING_MAX) -> bool:
    """Whether JSON values have more levels than this."""
    if not isinstance(value, list | dict):
        return False
    parts = value.values() if isinstance(value, dict) else value
    return not levels or any(nests_too_deep(part, levels - 1) for part in parts)


def truncate_bytes(text: str, limit_bytes: int) -> str:
    """At most `limit_bytes` of UTF-8, cut between characters. If it was cut it ends with a marker, within the limit."""
    encoded = text.encode()
    if len(encoded) <= limit_bytes:
        return text
    return encoded[: limit_bytes - len(TRUNCATED)].decode(errors="ignore") + TRUNCATED


def is_name(value: object) -> TypeGuard[str]:
    """Whether it can name a user or a tenant (`NAME_RULE`). Two such names never differ in invisible characters only,
    and none can come about by `clean_text` from another text.
    """
    if not isinstance(value, str) or not 0 < len(value) <= NAME_MAX:
        return False
    return value.isprintable() and bool(value.strip()) and _REPLACEMENT not in value
