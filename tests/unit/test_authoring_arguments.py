"""From a model's input to keyword arguments: no silent change of type."""

from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum, IntEnum
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple
from uuid import UUID

import pytest
from pydantic import BaseModel, Field, JsonValue, field_validator
from typing_extensions import TypedDict

from runyard import tool
from runyard.authoring.errors import InvalidToolInput
from runyard.authoring.tools import Tool


class Color(Enum):
    RED = "red"
    FIVE = 5


class Level(IntEnum):
    LOW = 1


class Circle(BaseModel):
    kind: Literal["circle"]
    radius: float


class Square(BaseModel):
    kind: Literal["square"]
    side: int


Shape = Annotated[Circle | Square, Field(discriminator="kind")]


class Node(BaseModel):
    value: int
    children: list["Node"] = []


@dataclass
class Point:
    x: int
    y: int = 0


class Window(TypedDict):
    start: int


class Pair(NamedTuple):
    left: int
    right: str


class Text(BaseModel):
    kind: Literal["text"]
    text: str
    size: int


Note = Annotated[Text | Square, Field(discriminator="kind")]


class Picky(BaseModel):
    word: str

    @field_validator("word")
    @classmethod
    def _short(cls, word: str) -> str:
        if len(word) > 3:
            raise ValueError(f"too long: {word}")
        return word


def tool_of(annotation: Any) -> Tool:
    def probe(x):
        return x

    probe.__annotations__ = {"x": annotation}
    return tool(probe)


IDENTIFIER = "12345678-1234-5678-1234-567812345678"

ACCEPTED = [
    (str, '{"a":1}', '{"a":1}'),
    (str, "5", "5"),
    (str | None, '{"a":1}', '{"a":1}'),
    (str | None, "null", "null"),
    (str | None, None, None),
    (str | list[str], '["a"]', '["a"]'),
    (str | list[str], ["a"], ["a"]),
    (int | str, "5", "5"),
    (int | str, 5, 5),
    (int | bool, True, True),
    (int | bool, 1, 1),
    (Any, '{"a":1}', '{"a":1}'),
    (JsonValue, '{"a":1}', '{"a":1}'),
    (Literal["5"] | list[int], "5", "5"),
    (dict, {"a": "1"}, {"a": "1"}),
    (dict, '{"a": "1"}', {"a": "1"}),
    (dict | None, '{"a": 1}', {"a": 1}),
    (list[int], "[1, 2]", [1, 2]),
    (dict[str, int] | list[int], "[1]", [1]),
    (Node, '{"value": 1, "children": [{"value": 2}]}', Node(value=1, children=[Node(value=2)])),
    (Shape, '{"kind": "square", "side": 2}', Square(kind="square", side=2)),
    (list[Shape], [{"kind": "circle", "radius": 1}], [Circle(kind="circle", radius=1.0)]),
    (Node, {"value": 1}, Node(value=1)),
    (Point, {"x": 1}, Point(1)),
    (Window, {"start": 1}, {"start": 1}),
    (Pair, [1, "a"], Pair(1, "a")),
    (float, 5, 5.0),
    (int, 10**30, 10**30),
    (dict[int, str], {"1": "a"}, {1: "a"}),
    (tuple[int, str], [1, "a"], (1, "a")),
    (set[int], [1, 2], {1, 2}),
    (frozenset[str], ["a"], frozenset({"a"})),
    (UUID, IDENTIFIER, UUID(IDENTIFIER)),
    (datetime, "2026-11-30T12:00:00Z", datetime(2026, 11, 30, 12, tzinfo=UTC)),
    (date, "2026-11-30", date(2026, 11, 30)),
    (time, "12:30", time(12, 30)),
    (timedelta, "PT90S", timedelta(seconds=90)),
    (Decimal, "1.10", Decimal("1.10")),
    (Decimal, 1, Decimal(1)),
    (Path, "a/b", Path("a/b")),
    (bytes, "ä", "ä".encode()),
    (Color, "red", Color.RED),
    (Color, 5, Color.FIVE),
    (Level, 1, Level.LOW),
    (Literal["a", 2], 2, 2),
]

REFUSED = [
    (str, 5, "x: expected string, got number"),
    (str, {"a": 1}, "x: expected string, got object"),
    (str, True, "x: expected string, got boolean"),
    (str, None, "x: expected string, got null"),
    (int, "5", "x: expected integer, got string"),
    (int, 1.5, "x: expected integer, got number"),
    (int, True, "x: expected integer, got boolean"),
    (float, "1.5", "x: expected number, got string"),
    (float, False, "x: expected number, got boolean"),
    (bool, 1, "x: expected boolean, got number"),
    (bool, "true", "x: expected boolean, got string"),
    (int | str, 1.5, "x: expected integer or string, got number"),
    (int | None, "null", "x: expected integer or null, got string"),
    (str | list[str], 5, "x: expected array or string, got number"),
    (dict, "5", "x: expected object, got string"),
    (dict, "[1]", "x: expected object, got string"),
    (dict, '{"a":', "x: expected object, got string"),
    (dict | int, "5", "x: expected integer or object, got string"),
    (list[int], '["a"]', "x.0: expected integer, got string"),
    (list[list[int]], ["[1]"], "x.0: expected array, got string"),
    (Node, {"value": "1", "children": [{"value": True}]}, "x.children.0.value: expected integer, got boolean"),
    (Node, {}, 'Missing required field "x.value"'),
    (Shape, {"kind": "square", "side": "1"}, "x.side: expected integer, got string"),
    (Node | Point, {"value": 1.5, "x": 1.5}, "x.value: expected integer, got number"),
    (list[int | str], [1, [2]], "x.1: expected integer or string, got array"),
    (Level, True, "x: expected integer, got boolean"),
    (Level, 1.0, "x: expected integer, got number"),
    (Literal[1, 2], True, "x: expected integer, got boolean"),
    (Literal["a", "b"], "c", "x: must be 'a' or 'b'"),
    (UUID, "5", "x: must be a valid UUID"),
    (UUID, 5, "x: expected string, got number"),
    (datetime, 5, "x: expected string, got number"),
    (date, "tomorrow", "x: must be a valid date"),
    (Annotated[int, Field(ge=1)], 0, "x: must be greater than or equal to 1"),
    (dict[int, str], {"a": "b"}, "x.a: must be a valid integer"),
    (Note | list[int], {"kind": "text", "text": "a", "size": "b"}, "x.size: expected integer, got string"),
    (list[Note], [{"kind": "text", "text": "a"}], 'Missing required field "x.0.size"'),
    (Picky, {"word": "long"}, "x.word: too long: long"),
]


@pytest.mark.parametrize(("annotation", "value", "expected"), ACCEPTED)
def test_a_value_that_fits_arrives(annotation, value, expected):
    arrived = tool_of(annotation).arguments({"x": value})["x"]
    assert arrived == expected
    assert type(arrived) is type(expected)


@pytest.mark.parametrize(("annotation", "value", "message"), REFUSED)
def test_a_value_that_does_not_fit_is_refused(annotation, value, message):
    with pytest.raises(InvalidToolInput) as raised:
        tool_of(annotation).arguments({"x": value})
    assert str(raised.value).startswith("Invalid tool input: ")
    assert message in str(raised.value)


@tool
def search(query: str, limit: int = 5, tags: list[str] = [], unit: str | None = "km") -> str:  # noqa: B006
    return query


def test_defaults_are_ours_and_belong_to_one_call():
    arguments = search.arguments({"query": "a"})
    assert arguments == {"query": "a", "limit": 5, "tags": [], "unit": "km"}
    arguments["tags"].append("mine")
    assert search.arguments({"query": "a"})["tags"] == []


def test_defaults_of_fields():
    @tool
    def probe(x: int = Field(3, ge=1), *, y: Annotated[list[int], Field(default_factory=list)]) -> int:
        return x

    assert probe.arguments({}) == {"x": 3, "y": []}
    with pytest.raises(InvalidToolInput, match="x: must be greater than or equal to 1"):
        probe.arguments({"x": 0})


def test_null_for_an_optional_parameter_means_not_given_unless_its_type_has_null():
    assert search.arguments({"query": "a", "limit": None, "unit": None}) == {
        "query": "a",
        "limit": 5,
        "tags": [],
        "unit": None,
    }


def test_every_issue_is_told_at_once():
    with pytest.raises(InvalidToolInput) as raised:
        search.arguments({"limit": "5", "tags": [1], "dry_run": True})
    assert str(raised.value).removeprefix("Invalid tool input: ").split("; ") == [
        'Missing required field "query" (type: string)',
        "limit: expected integer, got string",
        "tags.0: expected string, got number",
        'Unknown field "dry_run"',
    ]


def test_a_message_is_short_whatever_was_sent():
    huge = "x" * 100_000
    with pytest.raises(InvalidToolInput) as raised:
        tool_of(list[Shape]).arguments({"x": [{"kind": huge}] * 1000})
    assert len(str(raised.value)) < 4000
    assert "and 990 more" in str(raised.value)
    with pytest.raises(InvalidToolInput) as raised:
        tool_of(Picky).arguments({"x": {"word": huge}})
    assert len(str(raised.value)) < 400


@pytest.mark.parametrize(
    ("value", "got"), [([], "array"), (["a"], "array"), ("{}", "string"), (None, "null"), (5, "number")], ids=repr
)
def test_the_input_is_an_object(value, got):
    for made in (search, tool_of(str)):
        with pytest.raises(InvalidToolInput, match=f"Invalid tool input: expected object, got {got}"):
            made.arguments(value)


def test_a_lone_surrogate_and_a_deep_nest_are_refused_not_raised():
    deep: Any = []
    for _ in range(100_000):
        deep = [deep]
    for value in ("\ud800", deep):
        with pytest.raises(InvalidToolInput):
            tool_of(Any).arguments({"x": value})
