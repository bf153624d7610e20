"""What authors' code returns or streams becomes strict JSON, or is refused with its type named."""

import collections
import contextlib
import dataclasses
import itertools
import uuid
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum, StrEnum
from pathlib import PurePosixPath
from types import MappingProxyType, SimpleNamespace
from typing import Any, NamedTuple

import orjson
import pytest
from pydantic import BaseModel, Field, SecretStr

from runyard.authoring.json_values import Unserializable, to_json
from runyard.text import NESTING_MAX


class Color(Enum):
    RED = "red"
    PAIR = (1, 2)


class Word(StrEnum):
    ONE = "one"


class Order(BaseModel):
    number: int = Field(serialization_alias="orderNumber")
    total: Decimal
    ratio: float = float("nan")
    tags: set[str] = set()
    secret: SecretStr = SecretStr("hidden")


class Anything(BaseModel):
    model_config = {"arbitrary_types_allowed": True}
    value: Any


@dataclasses.dataclass
class Point:
    x: Any
    color: Color = Color.RED


class Pair(NamedTuple):
    left: Any
    right: Any


class LoudText(str):
    __slots__ = ()

    def __str__(self) -> str:
        raise RuntimeError("never asked")


class Broken:
    def __str__(self) -> str:
        raise RuntimeError("no words")

    __repr__ = __str__


class BrokenMapping(collections.UserDict):
    def items(self):
        raise RuntimeError("no items")


MARK = "\N{REPLACEMENT CHARACTER}"

CONVERTED = [
    (None, None),
    (True, True),
    (5, 5),
    (1.5, 1.5),
    ("text", "text"),
    (float("nan"), None),
    (float("inf"), None),
    ([float("-inf")], [None]),
    (2**64 - 1, 2**64 - 1),
    (2**64, str(2**64)),
    (-(10**30), str(-(10**30))),
    (Decimal("1.10"), "1.10"),
    (Decimal("NaN"), None),
    (Decimal("-Infinity"), None),
    (date(2026, 11, 30), "2026-11-30"),
    (datetime(2026, 11, 30, 1, 2, 3, tzinfo=UTC), "2026-11-30T01:02:03Z"),
    (time(1, 2), "01:02:00"),
    (timedelta(hours=1, seconds=2), "PT1H2S"),
    (uuid.UUID(int=1), "00000000-0000-0000-0000-000000000001"),
    (PurePosixPath("a/b"), "a/b"),
    (Color.RED, "red"),
    (Color.PAIR, [1, 2]),
    (Word.ONE, "one"),
    (LoudText("loud"), "loud"),
    ((1, "a"), [1, "a"]),
    ({3, 1, 2}, [1, 2, 3]),
    (frozenset({"b", "a"}), ["a", "b"]),
    (collections.deque([1]), [1]),
    (range(3), [0, 1, 2]),
    ({"a": 1}.keys(), ["a"]),
    ({"a": 1}.items(), [["a", 1]]),
    (MappingProxyType({"a": {1}}), {"a": [1]}),
    (b"text \xc3\xa4", "text ä"),
    (b"\xff\x00", "data:application/octet-stream;base64,/wA="),
    (bytearray(b"a"), "a"),
    (memoryview(b"a"), "a"),
    ({1: "a", 1.5: "b", None: "c"}, {"1": "a", "1.5": "b", "null": "c"}),
    ({False: "a"}, {"false": "a"}),
    ({(1, 2): "a", Color.RED: "b", date(2026, 1, 1): "c"}, {"[1,2]": "a", "red": "b", "2026-01-01": "c"}),
    ({float("nan"): "a"}, {"null": "a"}),
    ({"a\0": "b\0", "c": ["\ud800"]}, {f"a{MARK}": f"b{MARK}", "c": [MARK]}),
    ("\\u0000", "\\u0000"),
    ("\ud83d\ude00", "\N{GRINNING FACE}"),
    (Point(x={Decimal(1)}), {"x": ["1"], "color": "red"}),
    (Pair(1, date(2026, 1, 1)), [1, "2026-01-01"]),
    (
        Order(number=1, total=Decimal("2.50"), tags={"a"}),
        {"number": 1, "total": "2.50", "ratio": None, "tags": ["a"], "secret": "**********"},
    ),
    ({"order": [Order(number=1, total=Decimal(1))]}, None),
]


@pytest.mark.parametrize(("value", "expected"), CONVERTED)
def test_known_types_become_json(value, expected):
    converted = to_json(value)
    if expected is not None or value is None:
        assert converted == expected
    orjson.dumps(converted)


def later():
    yield 1


async def soon() -> int:
    return 1


async def stream():
    yield 1


def endless():
    return itertools.count()


def itself():
    loop: list = []
    loop.append({"again": (loop,)})
    return loop


def doubling():
    """Two references to itself at each level: following them would never end."""
    loop: list = []
    loop += [loop, loop]
    return loop


def deep():
    value: Any = 1
    for _ in range(NESTING_MAX + 1):
        value = [value]
    return value


REFUSED = [
    (lambda: Broken, "the class Broken"),
    (lambda: int, "the class int"),
    (lambda: Order, "the class Order"),
    (Broken, "Broken"),
    (object, "object"),
    (lambda: ValueError("secret"), "ValueError"),
    (later, "generator"),
    (endless, "itertools.count"),
    (stream, "async_generator"),
    (soon, "coroutine that was not awaited"),
    (lambda: lambda: 1, "function"),
    (lambda: SimpleNamespace(a=1), "SimpleNamespace"),
    (contextlib.nullcontext, "nullcontext"),
    (lambda: [{"a": Broken()}], "Broken"),
    (lambda: Point(x=Broken()), "Broken"),
    (lambda: Anything(value=Broken()), "Broken"),
    (lambda: {Broken(): 1}, "Broken"),
    (lambda: BrokenMapping(a=1), "BrokenMapping (converting it raised RuntimeError)"),
    (lambda: 10**5000, "int (converting it raised ValueError)"),
    (itself, "that contains itself"),
    (doubling, "that contains itself"),
    (deep, f"nested deeper than {NESTING_MAX} levels"),
]


@pytest.mark.parametrize(("make", "words"), REFUSED, ids=[str(number) for number in range(len(REFUSED))])
def test_what_has_no_json_form_is_refused_with_its_type_named(make, words):
    with pytest.raises(Unserializable) as raised:
        to_json(make())
    assert words in str(raised.value)
    assert "secret" not in str(raised.value)


def test_the_deepest_value_that_is_accepted_can_be_stored():
    value: Any = 1
    for _ in range(NESTING_MAX):
        value = [value]
    assert orjson.dumps({"frame": [to_json(value)]}).count(b"[") == NESTING_MAX + 1


def test_the_same_list_twice_is_no_loop():
    shared = [1]
    assert to_json([shared, shared, {"a": shared}]) == [[1], [1], {"a": [1]}]
