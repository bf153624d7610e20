"""`@tool`: the schema that a model sees, and what cannot become one."""

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum, IntEnum
from inspect import Signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, Optional
from uuid import UUID

import pytest
from pydantic import BaseModel, Field
from typing_extensions import TypedDict

from runyard import RunContext, tool
from runyard.authoring.errors import AuthoringError
from runyard.authoring.tools import Tool

if TYPE_CHECKING:
    from nowhere import Missing


class Color(Enum):
    RED = "red"
    BLUE = "blue"


class Level(IntEnum):
    LOW = 1
    HIGH = 2


class Circle(BaseModel):
    kind: Literal["circle"]
    radius: float = Field(gt=0, title="Radius", examples=[1.5])


class Square(BaseModel):
    kind: Literal["square"]
    side: float = 1.0


Shape = Annotated[Circle | Square, Field(discriminator="kind")]


class Node(BaseModel):
    """A node of a tree."""

    title: str
    default: int = 0
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


STRING = {"type": "string"}
INTEGER = {"type": "integer"}
NULL = {"type": "null"}

TABLE = [
    (str, STRING),
    (int, INTEGER),
    (float, {"type": "number"}),
    (bool, {"type": "boolean"}),
    (None, NULL),
    (Any, {}),
    (object, {}),
    (Literal["a"], {"const": "a", "type": "string"}),
    (Literal["a", "b"], {"enum": ["a", "b"], "type": "string"}),
    (list[str], {"type": "array", "items": STRING}),
    (dict[str, int], {"type": "object", "additionalProperties": INTEGER}),
    (int | str, {"anyOf": [INTEGER, STRING]}),
    (Optional[int], {"anyOf": [INTEGER, NULL]}),  # noqa: UP045 - the old spelling must work too
    (tuple[int, str], {"type": "array", "prefixItems": [INTEGER, STRING], "minItems": 2, "maxItems": 2}),
    (set[int], {"type": "array", "items": INTEGER, "uniqueItems": True}),
    (datetime, {"type": "string", "format": "date-time"}),
    (date, {"type": "string", "format": "date"}),
    (time, {"type": "string", "format": "time"}),
    (timedelta, {"type": "string", "format": "duration"}),
    (UUID, {"type": "string", "format": "uuid"}),
    (Path, {"type": "string", "format": "path"}),
    (Annotated[int, Field(ge=1, description="How many.")], {**INTEGER, "minimum": 1, "description": "How many."}),
]

SHAPES = [
    *(annotation for annotation, _ in TABLE),
    Color,
    Level,
    Circle,
    Shape,
    list[Shape],
    dict[str, list[Shape]],
    Node,
    list[Node] | None,
    Point,
    Window,
    Pair,
    Decimal,
    bytes,
    dict,
    list,
    str | list[str],
]


def tool_of(annotation: Any, **default: Any) -> Tool:
    def probe(x):
        return x

    probe.__annotations__ = {"x": annotation}
    if default:
        probe.__defaults__ = (default["default"],)
    return tool(probe)


@pytest.mark.parametrize(("annotation", "expected"), TABLE, ids=str)
def test_an_annotation_becomes_its_schema(annotation, expected):
    assert tool_of(annotation).schema == {"type": "object", "properties": {"x": expected}, "required": ["x"]}


def test_no_parameters_give_an_empty_object_without_required():
    @tool
    def ping() -> str:
        return "pong"

    assert ping.schema == {"type": "object", "properties": {}}
    assert ping.arguments({}) == {}


@pytest.mark.parametrize("annotation", SHAPES, ids=str)
def test_every_schema_is_one_that_a_strict_endpoint_accepts(annotation):
    for schema in (tool_of(annotation).schema, tool_of(annotation, default=None).schema):
        assert schema["type"] == "object"
        check_strictly(schema, definitions=schema.get("$defs", {}))


KEYWORDS = {
    *("type", "properties", "required", "items", "prefixItems", "anyOf", "enum", "const", "additionalProperties"),
    *("$ref", "$defs", "description", "format", "pattern", "minimum", "maximum", "exclusiveMinimum"),
    *("exclusiveMaximum", "minItems", "maxItems", "minLength", "maxLength", "uniqueItems", "examples"),
}
TYPES = {"string", "integer", "number", "boolean", "null", "array", "object"}


def check_strictly(schema: Any, definitions: Mapping[str, Any]) -> None:
    """JSON Schema 2020-12, without the keywords that strict endpoints refuse (oneOf, default, OpenAPI's own)."""
    assert isinstance(schema, dict)
    assert set(schema) <= KEYWORDS
    assert schema.get("type", "object") in TYPES
    if "$ref" in schema:
        assert schema["$ref"].removeprefix("#/$defs/") in definitions
    assert len(set(schema.get("required", []))) == len(schema.get("required", []))
    assert set(schema.get("required", [])) <= set(schema.get("properties", {}))
    assert schema.get("required") != []
    for choice in schema.get("anyOf", [None]):
        if choice is not None:
            check_strictly(choice, definitions)
    for part in (*schema.get("properties", {}).values(), *schema.get("$defs", {}).values()):
        check_strictly(part, definitions)
    for part in schema.get("prefixItems", []):
        check_strictly(part, definitions)
    for keyword in ("items", "additionalProperties"):
        if not isinstance(schema.get(keyword, True), bool):
            check_strictly(schema[keyword], definitions)


def test_fields_that_are_called_like_keywords_stay():
    definition = tool_of(Node).schema["$defs"]["Node"]
    assert list(definition["properties"]) == ["title", "default", "children"]
    assert definition["required"] == ["title"]
    assert definition["description"] == "A node of a tree."


def test_optional_parameters_are_left_out_of_required_only():
    @tool
    def search(query: str, limit: int = 5, unit: Literal["km", "mi"] | None = None, text: str = "") -> str:
        return query

    assert search.schema == {
        "type": "object",
        "properties": {
            "query": STRING,
            "limit": INTEGER,
            "unit": {"anyOf": [{"enum": ["km", "mi"], "type": "string"}, NULL]},
            "text": STRING,
        },
        "required": ["query"],
    }


@pytest.mark.parametrize(
    "annotation", [RunContext, "RunContext", RunContext | None, Annotated[RunContext, "given"]], ids=repr
)
@pytest.mark.parametrize("position", ["first", "last", "keyword"])
def test_the_context_is_given_and_never_shown(annotation, position):
    def first(ctx, query: str):
        return query

    def last(query: str, ctx):
        return query

    def keyword(query: str, *, ctx):
        return query

    function = {"first": first, "last": last, "keyword": keyword}[position]
    function.__annotations__["ctx"] = annotation
    made = tool(function)
    assert made.context_parameter == "ctx"
    assert made.schema == {"type": "object", "properties": {"query": STRING}, "required": ["query"]}


def test_names_that_mean_something_to_pydantic_or_python_are_names_like_any():
    @tool
    def probe(*, self: int, schema: str, model_config: int, json: str, copy: bool, cls: int, _x: int) -> str:
        return schema

    sent = {"self": 1, "schema": "s", "model_config": 2, "json": "{}", "copy": True, "cls": 3, "_x": 4}
    assert list(probe.schema["properties"]) == list(sent)
    assert probe.arguments(sent) == sent


def test_an_alias_is_the_name_that_the_model_sees():
    @tool
    def trips(from_: Annotated[str, Field(alias="from")]) -> str:
        """Find trips.

        Args:
            from_: Where to start.
        """
        return from_

    assert trips.schema["properties"] == {"from": {"type": "string", "description": "Where to start."}}
    assert trips.arguments({"from": "Bern"}) == {"from_": "Bern"}


@pytest.mark.parametrize(
    "docstring",
    [
        "Search the library.\n\nSlowly.\n\nArgs:\n    query: What to look for.\n\nReturns:\n    Hits.",
        "Search the library.\n\nSlowly.\n\n:param query: What to look for.\n:returns: Hits.",
        "Search the library.\n\nSlowly.\n\nParameters\n----------\nquery : str\n    What to look for.\n",
    ],
    ids=["google", "sphinx", "numpy"],
)
def test_descriptions_come_from_the_docstring(docstring):
    def search(query: str, limit: Annotated[int, Field(description="From the annotation.")] = 5) -> str:
        return query

    search.__doc__ = docstring
    made = tool(search)
    assert made.description == "Search the library.\n\nSlowly."
    assert made.schema["properties"]["query"]["description"] == "What to look for."
    assert made.schema["properties"]["limit"]["description"] == "From the annotation."


def test_a_description_given_goes_before_the_docstring_and_none_is_empty():
    def search(query: str) -> str:
        """From the docstring."""
        return query

    def bare(query: str) -> str:
        return query

    assert tool(description="Given.")(search).description == "Given."
    assert tool(bare).description == ""


def test_options_and_defaults():
    @tool(name="find", timeout_s=3, exclusive=True, idempotent=True)
    async def search() -> str:
        return ""

    assert (search.name, search.timeout_s, search.exclusive, search.idempotent) == ("find", 3, True, True)
    assert search.is_async

    @tool
    def plain() -> str:
        return ""

    assert (plain.name, plain.timeout_s, plain.exclusive, plain.idempotent) == ("plain", 120, False, False)
    assert not plain.is_async


def test_a_tool_is_called_like_its_function():
    @tool
    def double(number: int) -> int:
        return number * 2

    assert double(4) == 8
    assert double(number=5) == 10


class Shop:
    async def buy(self, item: str) -> str:
        """Buy an item."""
        return item


class Lookup:
    """Look a word up."""

    def __call__(self, word: str) -> str:
        return word


def greet(greeting: str, name: str, punctuation: str = "!") -> str:
    """Greet somebody."""
    return f"{greeting} {name}{punctuation}"


def test_bound_methods_partials_and_instances_are_tools():
    buy = tool(Shop().buy)
    assert (buy.name, buy.description, buy.is_async) == ("buy", "Buy an item.", True)
    assert list(buy.schema["properties"]) == ["item"]

    hello = tool(functools.partial(greet, "Hello", punctuation="."))
    assert (hello.name, hello.description) == ("greet", "Greet somebody.")
    assert hello.schema["properties"] == {"name": STRING}
    assert hello(**hello.arguments({"name": "Ada"})) == "Hello Ada."

    lookup = tool(name="lookup")(Lookup())
    assert list(lookup.schema["properties"]) == ["word"]
    assert lookup("x") == "x"


def test_a_wrapped_function_keeps_its_signature():
    def traced(function):
        @functools.wraps(function)
        def wrapper(*args, **kwargs):
            return "traced " + function(*args, **kwargs)

        return wrapper

    made = tool(traced(greet))
    assert list(made.schema["properties"]) == ["greeting", "name", "punctuation"]
    assert made(greeting="Hi", name="Ada") == "traced Hi Ada!"


def test_an_unknown_name_in_the_return_type_does_not_matter():
    def probe(x: int) -> "Missing":
        return x

    assert tool(probe).arguments({"x": 1}) == {"x": 1}


def variadic(*queries: str) -> str: ...
def keywords(**queries: str) -> str: ...
def untyped(query) -> str: ...
def positional(query: str, /) -> str: ...
def twice(query: RunContext, ctx: RunContext) -> str: ...
def unknown(query: "Missing") -> str: ...
def callback(query: Callable[[], int]) -> str: ...
def union_callback(query: int | Callable[[], int]) -> str: ...
def a_class(query: type[int]) -> str: ...
def arbitrary(query: Signature) -> str: ...
def nested_arbitrary(fine: int, query: dict[str, list[Signature]]) -> str: ...
def nested_context(query: list[RunContext]) -> str: ...
def lazy(query: Iterable[int]) -> str: ...
def nested_lazy(query: list[int] | Iterable[int]) -> str: ...


@pytest.mark.parametrize(
    "function",
    [
        *(variadic, keywords, untyped, positional, unknown, callback, union_callback, a_class, arbitrary),
        *(nested_arbitrary, nested_context, lazy, nested_lazy),
    ],
    ids=lambda function: function.__name__,
)
def test_what_cannot_become_a_schema_names_tool_and_parameter(function):
    with pytest.raises(AuthoringError) as raised:
        tool(function)
    assert f"'{function.__name__}'" in str(raised.value)
    assert "'quer" in str(raised.value)
    for advice in ("pydantic.dev", "arbitrary_types_allowed"):
        assert advice not in str(raised.value)


def test_a_method_of_a_class_is_told_what_to_be():
    with pytest.raises(AuthoringError, match=r"'self': a method of a class; use that of an instance"):
        tool(Shop.buy)


def test_a_second_context_is_an_error():
    with pytest.raises(AuthoringError, match=r"'twice', parameter 'ctx': a second RunContext beside 'query'"):
        tool(twice)


def test_generators_have_no_result():
    def numbers() -> Iterator[int]:
        yield 1

    async def later():
        yield 1

    for function in (numbers, later, functools.partial(numbers)):
        with pytest.raises(AuthoringError, match="generator"):
            tool(function)


@pytest.mark.parametrize("option", ["exclusive", "idempotent"])
def test_a_flag_is_true_or_false(option):
    with pytest.raises(AuthoringError, match=f"'greet': {option} must be True or False, not 'no'"):
        tool(**{option: "no"})(greet)


def test_a_description_and_a_name_are_texts():
    with pytest.raises(AuthoringError, match="'greet': description must be a text"):
        tool(description=5)(greet)
    with pytest.raises(AuthoringError, match="tool 5: a name is"):
        tool(name=5)(greet)


@pytest.mark.parametrize("name", ["", "two words", "a.b", "ä", "x" * 65, "<lambda>"])
def test_a_bad_name_is_an_error(name):
    def probe() -> str:
        return ""

    with pytest.raises(AuthoringError, match="a name is 1 to 64"):
        tool(name=name)(probe)
    probe.__name__ = name
    with pytest.raises(AuthoringError, match="a name is 1 to 64"):
        tool(probe)


@pytest.mark.parametrize("thing", [Shop, 5, "text", None, classmethod(greet)], ids=str)
def test_only_functions_are_tools(thing):
    with pytest.raises(AuthoringError, match="takes a function"):
        tool()(thing)


def test_a_tool_is_no_function():
    made = tool(greet)
    with pytest.raises(AuthoringError, match="'greet': it is a tool already"):
        tool(made)


@pytest.mark.parametrize("timeout_s", [0, -1, float("nan"), float("inf"), True, "5", None])
def test_a_timeout_is_a_time(timeout_s):
    with pytest.raises(AuthoringError, match="'greet': timeout_s"):
        tool(timeout_s=timeout_s)(greet)
