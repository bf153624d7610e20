"""Values that an author's code returns or streams -> strict JSON values.

- str, int, float, bool, None: themselves; NaN and infinities null; integers beyond 64 bits decimal strings
- a pydantic model: the JSON form that it defines (aliases, serializers)
- a dataclass or mapping: an object; keys that are no strings become the text of their JSON form (`1` -> `"1"`)
- a sequence, set or dict view: an array; sets in the order of their items' JSON text, so that equal sets read alike
- an Enum: its value
- Decimal, UUID, Path, date, datetime, time, timedelta, ...: a string as pydantic writes it (ISO 8601 where there is
  one); a Decimal that is not finite null
- bytes: their UTF-8 text, else a URL `data:application/octet-stream;base64,...`

Everything else raises: a generator or a coroutine has no value yet, and the `repr` of an arbitrary object is no data.
"""

import base64
import dataclasses
import inspect
from collections.abc import Callable, ItemsView, Iterator, KeysView, Mapping, Sequence, ValuesView
from collections.abc import Set as AbstractSet
from decimal import Decimal
from enum import Enum
from pathlib import PurePath
from typing import Any

import orjson
from pydantic import BaseModel
from pydantic_core import to_jsonable_python

from runyard.text import NESTING_MAX, clean_json


class Unserializable(TypeError):
    """A value has no JSON form. The message names the type that is to blame, never the value."""


def to_json(value: Any) -> Any:
    """Clean, strict JSON values (`runyard.text.clean_json` has been applied).

    Raises:
        Unserializable: the value, or one inside it, has no JSON form.
    """
    try:
        return clean_json(_convert(value, ()))
    except Unserializable:
        raise
    except BaseException as error:
        # Serializers, properties and iterators of authors' classes run in here: they may raise anything.
        raise Unserializable(f"{type_name(value)} (converting it raised {type(error).__name__})") from error


def type_name(value: Any) -> str:
    """`int`, `decimal.Decimal`, `runyard_agents.shop.Order`."""
    kind = type(value)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def _convert(value: Any, path: tuple[int, ...]) -> Any:
    """JSON values, not yet clean. `path` holds the ids of the containers around the value."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, Enum):
        return _convert(value.value, path)
    for kind, convert in _SCALARS:
        if isinstance(value, kind):
            return convert(value)
    if id(value) in path:
        raise Unserializable(f"{type_name(value)} that contains itself")
    if len(path) >= NESTING_MAX:
        raise Unserializable(f"{type_name(value)} nested deeper than {NESTING_MAX} levels")
    return _convert_container(value, (*path, id(value)))


def _convert_container(value: Any, path: tuple[int, ...]) -> Any:
    match value:
        case BaseModel():
            return _convert(value.model_dump(mode="json", warnings="none", fallback=_refuse), path)
        case Mapping():
            return {_key(key, path): _convert(item, path) for key, item in value.items()}
        case Sequence() | KeysView() | ValuesView() | ItemsView():
            return [_convert(item, path) for item in value]
        case AbstractSet():
            return sorted((_convert(item, path) for item in value), key=_text)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: _convert(getattr(value, field.name), path) for field in dataclasses.fields(value)}
    return _convert_other(value)


def _convert_other(value: Any) -> Any:
    if isinstance(value, type):
        raise Unserializable(f"the class {value.__qualname__}")
    if inspect.iscoroutine(value):
        value.close()  # else the interpreter complains, far from here, that it was never awaited
    if inspect.isawaitable(value):
        raise Unserializable(f"{type_name(value)} that was not awaited")
    if isinstance(value, Iterator) or inspect.isasyncgen(value):
        raise Unserializable(f"{type_name(value)} that was not read to its end")
    return to_jsonable_python(value, fallback=_refuse)


def _refuse(value: Any) -> Any:
    raise Unserializable(type_name(value))


def _key(key: Any, path: tuple[int, ...]) -> str:
    converted = _convert(key, path)
    return converted if isinstance(converted, str) else _text(converted).decode()


def _text(value: Any) -> bytes:
    return orjson.dumps(clean_json(value))


def _bytes_text(value: bytes | bytearray | memoryview) -> str:
    octets = bytes(value)
    try:
        return octets.decode()
    except UnicodeDecodeError:
        return "data:application/octet-stream;base64," + base64.b64encode(octets).decode()


def _decimal_text(value: Decimal) -> str | None:
    return str(value) if value.is_finite() else None


_SCALARS: tuple[tuple[type | tuple[type, ...], Callable[[Any], Any]], ...] = (
    (str, str.__str__),
    (int, int),
    (float, float),
    ((bytes, bytearray, memoryview), _bytes_text),
    (Decimal, _decimal_text),
    (PurePath, str),
)
"""Subclasses become the plain type: what a tool returns must not carry behaviour into the worker."""
