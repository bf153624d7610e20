"""Reading a request's body: one JSON object whose text and numbers every store can hold unchanged.

What a store cannot hold is refused, never altered, since the sender can still say what was meant (ADR 0009).
"""

import json
from collections.abc import Iterable, Iterator
from itertools import chain
from math import inf, isfinite
from typing import Any

from starlette.requests import Request

from runyard.errors import InvalidArgs, PayloadTooLarge, UnsupportedMediaType
from runyard.text import INTEGERS, NESTING_MAX, clean_text, is_clean
from runyard_gateway.answers import JSON

DIGITS_MAX = 20
"""As many as 64-bit numbers have. `int` itself refuses only thousands of digits, with an error of its own."""

PROBLEMS_MAX = 100
"""If a body has more problems they are not listed one by one: there may be as many as it has bytes."""

WRONG_EVERYWHERE = "most of the body is wrong"
UNSTORABLE_TEXT = "text cannot hold U+0000 or half of a surrogate pair"

_TOO_LARGE = "a number is too large"
_TOO_DEEP = f"nests deeper than {NESTING_MAX} levels"
_TWICE = "a name is given twice in one object"


class NoJsonObject(InvalidArgs):
    """The body cannot be read at all, or is something other than an object."""


class _Ambiguous(dict[str, Any]):
    """An object that has a name twice: readers differ in which value they take (RFC 8259, section 4)."""

    twice: str


async def read_raw(request: Request, *, limit_bytes: int) -> bytes:
    """Raises `PayloadTooLarge` if it has more bytes than allowed; it reads no further than that."""
    raw = bytearray()
    _check_size(int(request.headers.get("content-length", 0)), limit_bytes)
    async for chunk in request.stream():
        raw += chunk
        _check_size(len(raw), limit_bytes)
    return bytes(raw)


def check_media_type(request: Request) -> None:
    """Raises `UnsupportedMediaType` if the request says that its body is something other than JSON, or compressed."""
    given = request.headers.get("content-type", JSON)
    media_type = given.partition(";")[0].strip().lower()
    if media_type != JSON and not media_type.endswith("+json"):
        raise UnsupportedMediaType(f"send JSON, with Content-Type: {JSON}")
    if request.headers.get("content-encoding", "identity").strip().lower() != "identity":
        raise UnsupportedMediaType("send the body as it is, without Content-Encoding")


def as_object(raw: bytes) -> dict[str, Any]:
    """The JSON object in these bytes; no bytes at all count as an empty one.

    Raises:
        NoJsonObject: it is not a JSON object.
        InvalidArgs: no store could hold a part of it. `fields` names where.
    """
    try:
        body = _decode(raw or b"{}")
    except (ValueError, RecursionError) as error:
        raise NoJsonObject("the body is not valid JSON in UTF-8") from error
    if not isinstance(body, dict):
        raise NoJsonObject("the body must be a JSON object")
    problems = {clean_text(field): problem for field, value in _fields(body) if (problem := _problem_of(field, value))}
    if len(problems) > PROBLEMS_MAX:
        raise InvalidArgs(WRONG_EVERYWHERE)
    if problems:
        told = "; ".join(f"{field}: {problem}" for field, problem in problems.items())
        raise InvalidArgs(told, fields=sorted(problems))
    return body


def _check_size(size_bytes: int, limit_bytes: int) -> None:
    if size_bytes > limit_bytes:
        raise PayloadTooLarge(f"the body is larger than {limit_bytes} bytes", limitBytes=limit_bytes)


def _decode(raw: bytes) -> Any:
    """A number that is too large becomes infinity, so that the error can name its field: JSON has no infinity.

    Raises:
        ValueError: it is not JSON text (RFC 8259).
        RecursionError: it is nested too deep to be read.
    """
    return json.loads(
        raw.decode(),
        object_pairs_hook=_object,
        parse_constant=_refuse_constant,
        parse_float=float,
        parse_int=_whole_number,
    )


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) == len(pairs):
        return made
    ambiguous = _Ambiguous(made)
    seen: set[str] = set()
    for name, _ in pairs:
        if name in seen:
            ambiguous.twice = name
            break
        seen.add(name)
    return ambiguous


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _whole_number(digits: str) -> int | float:
    return number if len(digits) <= DIGITS_MAX and (number := int(digits)) in INTEGERS else inf


def _fields(body: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """The fields by the names that errors use, including those of the nested body `as`."""
    if isinstance(body, _Ambiguous):
        yield body.twice, body
    for name, value in body.items():
        if name == "as" and type(value) is dict:
            yield from ((f"as.{inner}", item) for inner, item in value.items())
        else:
            yield name, value


def _problem_of(field: str, value: Any) -> str | None:
    return _problem(field, 0) or _problem(value, NESTING_MAX - 1)


def _problem(value: Any, levels: int) -> str | None:
    """Why a store cannot hold it, in words for the caller. None: every store can."""
    parts: Iterable[Any]
    match value:
        case str():
            return None if is_clean(value) else UNSTORABLE_TEXT
        case float():
            return None if isfinite(value) else _TOO_LARGE
        case _Ambiguous():
            return _TWICE
        case dict():
            parts = chain(value, value.values())
        case list():
            parts = value
        case _:
            return None
    if not levels:
        return _TOO_DEEP
    return next(filter(None, (_problem(part, levels - 1) for part in parts)), None)
