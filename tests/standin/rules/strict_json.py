"""What a request body may be made of: strict JSON in UTF-8, no lone surrogate, no NaN."""

import math
from typing import Any

import orjson

from tests.standin.rules.refusal import InvalidTranscript


def parse(body: bytes) -> Any:
    """The value of a request body.

    Raises:
        InvalidTranscript: not JSON, not UTF-8, or with a NaN, an infinity or a lone surrogate in it.
    """
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise InvalidTranscript(f"The request body is not valid JSON: {error}") from None


def check(value: Any, path: str = "$") -> None:
    """The same for a value that was never encoded: it must have a strict JSON form."""
    match value:
        case None | bool() | int():
            return
        case float():
            if not math.isfinite(value):
                raise InvalidTranscript(f"The request body is not valid JSON: {value} at {path}")
        case str():
            _check_text(value, path)
        case list():
            for index, item in enumerate(value):
                check(item, f"{path}[{index}]")
        case dict():
            for key, item in value.items():
                if not isinstance(key, str):
                    raise InvalidTranscript(f"The request body is not valid JSON: key {key!r} at {path}")
                _check_text(key, path)
                check(item, f"{path}.{key}")
        case _:
            raise InvalidTranscript(f"The request body is not valid JSON: {type(value).__name__} at {path}")


def _check_text(text: str, path: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidTranscript(f"The request body is not valid JSON: no low surrogate in string at {path}") from None
