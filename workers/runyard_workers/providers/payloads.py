"""Reads the JSON of a stream's events; JSON that cannot be read is a failure of the provider."""

import json
from typing import Any, TypeVar

import orjson

from runyard_workers.providers.failures import malformed
from runyard_workers.providers.sse import ServerSentEvent

_T = TypeVar("_T")

_KNOWN_NAMES = frozenset(
    {
        b"message_start",
        b"content_block_start",
        b"content_block_delta",
        b"content_block_stop",
        b"message_delta",
        b"message_stop",
        b"error",
    }
)


def read_payload(event: ServerSentEvent) -> dict[str, Any]:
    """The event's object; `{}` for an event that is not of the Messages API (clients must ignore those), like `data:
    [DONE]`.

    Raises:
        ProviderError: an event of the Messages API is not a JSON object.
    """
    try:
        payload = orjson.loads(event.data)
    except orjson.JSONDecodeError:
        payload = read_exactly(event)
    if isinstance(payload, dict):
        return payload
    if event.name in _KNOWN_NAMES:
        raise malformed(f"a {event.name.decode()} event that is no JSON object")
    return {}


def read_exactly(event: ServerSentEvent) -> Any:
    """Read an event with Python's own reader. It is slower than orjson, but accepts half of a surrogate pair (the other
    half comes with the next delta) and NaN, and keeps integers beyond 64 bits, which orjson turns into floats.

    Returns None for what is not JSON.
    """
    try:
        return json.loads(event.data)
    except (ValueError, RecursionError):
        return None


def read_field(payload: dict[str, Any], name: str, kind: type[_T]) -> _T:
    """A field without which the event makes no sense.

    Raises:
        ProviderError: it is missing or of another type.
    """
    value = payload.get(name)
    if not isinstance(value, kind):
        raise malformed(f"{name} of a {payload.get('type', 'nameless')} is no {kind.__name__}")
    return value
