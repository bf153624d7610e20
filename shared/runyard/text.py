"""The one cleaner that text from outside passes before it reaches database, stream or model.

PostgreSQL holds no U+0000 in text and no NaN in JSON; UTF-8 holds no lone surrogates; orjson holds no integer beyond
64 bits. All of them arrive from tools, models and users, and each must not cost a run.
"""

import math
import re
from typing import Any, TypeGuard

TRUNCATED = "[truncated]"

NAME_MAX = 256
NAME_RULE = f"a name of 1 to {NAME_MAX} printable characters"

_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
_INT_MIN, _INT_MAX = -(2**63), 2**64 - 1


def clean_text(text: str) -> str:
    """NUL and lone surrogates replaced by U+FFFD; anything else, a literal backslash-u0000 included, as it is."""
    if text.isascii() and "\x00" not in text:
        return text
    if _UNSTORABLE.search(text) is None:
        return text
    # A pair of surrogates in a Python string is one character that was split (e.g. by a JSON reader): join it first.
    joined = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return _UNSTORABLE.sub(_REPLACEMENT, joined)


def clean_json(value: Any) -> Any:
    """JSON values as decoded by any reader -> strict JSON: clean keys and strings, NaN and infinities null.

    Integers beyond 64 bits become decimal strings. A second key that becomes equal to a first by cleaning wins.
    """
    if isinstance(value, str):
        return clean_text(value)
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return value if _INT_MIN <= value <= _INT_MAX else str(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, list):
        return [clean_json(item) for item in value]
    if isinstance(value, dict):
        return {clean_text(key): clean_json(item) for key, item in value.items()}
    raise TypeError(f"not a JSON value: {type(value).__name__}")


def truncate_bytes(text: str, limit_bytes: int) -> str:
    """At most `limit_bytes` of UTF-8, marker included; cut between characters; the marker only when cut."""
    encoded = text.encode()
    if len(encoded) <= limit_bytes:
        return text
    return encoded[: limit_bytes - len(TRUNCATED)].decode(errors="ignore") + TRUNCATED


def is_name(value: object) -> TypeGuard[str]:
    """Whether it can name a user or a tenant (`NAME_RULE`): no two that look alike differ by what nobody sees, and none
    was made of another by `clean_text`.
    """
    if not isinstance(value, str) or not 0 < len(value) <= NAME_MAX:
        return False
    return value.isprintable() and bool(value.strip()) and _REPLACEMENT not in value
