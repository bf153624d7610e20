"""The one cleaner that text from outside passes before it reaches database, stream or model.

PostgreSQL holds no U+0000 in text and no NaN in JSON; UTF-8 holds no lone surrogates; orjson holds no integer beyond
64 bits. All of them arrive from tools and models, and each must not cost a run. Callers who send them are refused
instead (`runyard_gateway.bodies`): they can still say what they meant.
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
"""Those that every part writes as a number."""


def is_clean(text: str) -> bool:
    """Whether `clean_text` would leave it as it is."""
    return ("\x00" not in text) if text.isascii() else _UNSTORABLE.search(text) is None


def clean_text(text: str) -> str:
    """NUL and lone surrogates replaced by U+FFFD; anything else, a literal backslash-u0000 included, as it is."""
    if is_clean(text):
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
        return value if value in INTEGERS else str(value)
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
