"""The demo model: for the tools of any folder, calls that fit the text, then an answer from what they gave."""

from datetime import date, datetime
from enum import StrEnum
from typing import Annotated, Any, Literal
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field, TypeAdapter, create_model
from tests.standin import validate_transcript

from runyard.errors import ProviderError
from runyard_workers.providers.demo import DemoProvider
from runyard_workers.providers.demo.arguments import fill_arguments
from runyard_workers.providers.demo.choosing import choose_tools
from runyard_workers.providers.demo.schemas import CannotFill
from runyard_workers.providers.model import ModelEvent, ModelRequest, TextDelta, ThinkingDelta, Turn

pytestmark = pytest.mark.anyio


def tool(name: str, description: str = "", **parameters: Any) -> dict[str, Any]:
    model = create_model(
        name, **{key: (kind if isinstance(kind, tuple) else (kind, ...)) for key, kind in parameters.items()}
    )
    return {"name": name, "description": description, "input_schema": model.model_json_schema()}


SEARCH = tool("search_docs", "Search the library of documents.", query=str, limit=(int, 5))
CONVERT = tool("convert_units", "Convert an amount to another unit.", value=float, from_unit=str, to_unit=str)
CALCULATE = tool("calculate", "Evaluate an arithmetic expression.", expression=str)
WEATHER = tool("get_weather", "The weather of a city.", city=str, unit=(Literal["celsius", "fahrenheit"], "celsius"))
REFUND = tool("refund", "Pay an order back.", order=str, amount=float)
SUMMARISE = tool("agent_summarizer", "Let the summarizer do a part of the task.", input=str)
ALL = [REFUND, SEARCH, CONVERT, CALCULATE, WEATHER, SUMMARISE]


def user(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


def ask(*messages: dict[str, Any], tools: list[dict[str, Any]] = ALL, **fields: Any) -> ModelRequest:
    return ModelRequest(model="demo", system="Help.", messages=list(messages), tools=tools, max_tokens=1000, **fields)


async def events_of(request: ModelRequest) -> list[ModelEvent]:
    return [one async for one in DemoProvider(delay_ms=0).stream(request)]


async def turn_of(request: ModelRequest) -> Turn:
    last = (await events_of(request))[-1]
    assert isinstance(last, Turn)
    return last


def calls_of(turn: Turn) -> list[tuple[str, Any]]:
    return [(block["name"], block["input"]) for block in turn.content if block["type"] == "tool_use"]


def text_of(turn: Turn) -> str:
    return "".join(block["text"] for block in turn.content if block["type"] == "text")


# Calls --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("How do retries work?", [("search_docs", {"query": "How do retries work"})]),
        ('search for "dead letters" limit 3', [("search_docs", {"query": "dead letters", "limit": 3})]),
        ("Please search the docs for cursors, thanks!", [("search_docs", {"query": "cursors"})]),
        ("Convert 5 miles to km", [("convert_units", {"value": 5, "from_unit": "miles", "to_unit": "km"})]),
        ("How many feet are 3 meters?", [("convert_units", {"value": 3, "from_unit": "meters", "to_unit": "feet"})]),
        ("20°C in °F", [("convert_units", {"value": 20, "from_unit": "C", "to_unit": "F"})]),
        (
            "42.2 km, in square feet per day",
            [("convert_units", {"value": 42.2, "from_unit": "km", "to_unit": "square feet per day"})],
        ),
        ("What is 15% of 80?", [("calculate", {"expression": "15/100 * 80"})]),
        ("Work out 3 km / 12 min", [("calculate", {"expression": "3 km / 12 min"})]),
        ("What is 12 times 7?", [("calculate", {"expression": "12 * 7"})]),
        ("Refund order A-123, $20.50 please", [("refund", {"order": "A-123", "amount": 20.5})]),
        ("weather in new york in fahrenheit", [("get_weather", {"city": "new york", "unit": "fahrenheit"})]),
        ("Ask the summarizer to shorten it", [("agent_summarizer", {"input": "Ask the summarizer to shorten it"})]),
        (
            "What's the weather in Paris and search the docs for cursors",
            [("get_weather", {"city": "Paris"}), ("search_docs", {"query": "cursors"})],
        ),
        (
            "Convert 26.2 miles to km and 70 kg to pounds.",
            [
                ("convert_units", {"value": 26.2, "from_unit": "miles", "to_unit": "km"}),
                ("convert_units", {"value": 70, "from_unit": "kg", "to_unit": "pounds"}),
            ],
        ),
        (
            "Explain the pros and cons of streaming",
            [("search_docs", {"query": "Explain the pros and cons of streaming"})],
        ),
    ],
)
async def test_the_tools_that_fit_are_called_with_what_the_text_gives(text: str, expected: Any) -> None:
    turn = await turn_of(ask(user(text)))
    assert calls_of(turn) == expected
    assert turn.stop_reason == "tool_use"
    assert calls_of(await turn_of(ask(user([{"type": "text", "text": text}])))) == expected


async def test_a_text_that_asks_for_no_tool_shows_one_all_the_same_but_no_harmful_one() -> None:
    assert [name for name, _ in calls_of(await turn_of(ask(user("hello"))))] == ["search_docs"]
    delete, show = tool("delete_account", id=str), tool("show_account", id=str)
    assert choose_tools([delete, show], "hello")[0].tool is show
    assert choose_tools([delete], "hello")[0].tool is delete


class Circle(BaseModel):
    kind: Literal["circle"]
    radius: float


class Square(BaseModel):
    kind: Literal["square"]
    side: Annotated[int, Field(ge=2, le=10)]


Shape = Annotated[Circle | Square, Field(discriminator="kind")]


class Color(StrEnum):
    RED = "red"
    DARK_BLUE = "dark blue"


class Node(BaseModel):
    label: str
    children: list["Node"] = []
    parent: "Node | None" = None


class Address(BaseModel):
    city: str
    zip_code: Annotated[str, Field(pattern=r"^\d{5}$")]


PARAMETERS: dict[str, tuple[Any, str, Any]] = {
    "enum by mention": (Color, "make it dark blue", "dark blue"),
    "enum without mention": (Color, "make it nice", "red"),
    "const": (Literal["only"], "x", "only"),
    "several of an enum": (list[Color], "dark blue or red?", ["dark blue", "red"]),
    "integer": (int, "take 4.5 or 7", 7),
    "integer with separators": (int, "about 1,250,000 people", 1_250_000),
    "written number": (int, "roll two dice", 2),
    "within bounds": (Annotated[int, Field(ge=5, le=9)], "from 3 to 7 to 12", 7),
    "no number": (int, "some", 1),
    "no number within bounds": (Annotated[float, Field(gt=0.5, lt=0.9)], "some", 0.7),
    "multiple": (Annotated[int, Field(multiple_of=5, ge=12)], "some", 15),
    "numbers": (list[float], "add 1.5, 2 and -3", [1.5, 2, -3]),
    "boolean": (bool, "whatever", False),
    "date": (date, "on 2026-03-01 please", "2026-03-01"),
    "date without one": (date, "soon", "2026-01-15"),
    "date and time": (datetime, "at 2026-03-01T10:00:00Z", "2026-03-01T10:00:00Z"),
    "uuid": (UUID, "see 6a2f41a3-c54c-4ea1-9b0e-2f6fbb1c3a11", "6a2f41a3-c54c-4ea1-9b0e-2f6fbb1c3a11"),
    "uuid without one": (UUID, "see it", "00000000-0000-4000-8000-000000000000"),
    "quoted": (str, "write 'so be it' now", "so be it"),
    "unquoted": (str, "Could you please write so be it", "write so be it"),
    "cut to size": (Annotated[str, Field(max_length=5)], "a longer text", "a lon"),
    "stretched to size": (Annotated[str, Field(min_length=8)], "abc", "abc abc "),
    "pattern in the text": (Annotated[str, Field(pattern=r"^[A-Z]{3}$")], "from ABC to there", "ABC"),
    "pattern not in the text": (Annotated[str, Field(pattern=r"^\d{4}$")], "pin", "1234"),
    "strings": (list[str], "compare Rust, Go and Python", ["Rust", "Go", "Python"]),
    "a tuple": (tuple[int, str], "7 of them", [7, "7 of them"]),
    "nullable": (int | None, "take 8", 8),
    "number or text": (int | str, "take 8", 8),
    "text or number": (int | str, "take it", "take it"),
    "a tagged union": (
        Annotated[Shape | Square, Field(discriminator="kind")],
        "a square of 4",
        {"kind": "square", "side": 4},
    ),
    "nested": (Address, "in Berlin 10115", {"city": "Berlin", "zip_code": "10115"}),
    "refers to itself": (Node, "root", {"label": "root"}),
    "anything": (Any, "as you like", "as you like"),
    "a map": (dict[str, int], "whatever", {}),
}


@pytest.mark.parametrize(("kind", "text", "expected"), PARAMETERS.values(), ids=PARAMETERS)
def test_a_required_argument_fits_its_schema_and_the_text(kind: Any, text: str, expected: Any) -> None:
    schema = tool("f", x=kind)["input_schema"]
    assert fill_arguments(schema, text, text) == {"x": expected}
    TypeAdapter(kind).validate_python(expected, strict=False)


@pytest.mark.parametrize(
    ("parameters", "text", "expected"),
    [
        ({"width": float, "height": float}, "a height of 3 and a width of 4", {"width": 4, "height": 3}),
        ({"a": int, "b": int}, "add 3 and 4", {"a": 3, "b": 4}),
        ({"max_results": (int, 10), "q": str}, "cats, 5 results", {"max_results": 5, "q": "cats, 5 results"}),
        ({"q": str, "verbose": (bool, False)}, "cats, verbose", {"q": "cats, verbose", "verbose": True}),
        ({"q": str, "verbose": (bool, True)}, "cats, not verbose", {"q": "cats, not verbose", "verbose": False}),
        ({"q": str, "color": (str, "red")}, "cats color: blue", {"q": "cats color: blue", "color": "blue"}),
        ({"q": str, "when": (date | None, None)}, "cats", {"q": "cats"}),
        ({"q": str, "when": (date | None, None)}, "cats 2026-03-01", {"q": "cats 2026-03-01", "when": "2026-03-01"}),
        ({"title": str, "body": str}, "Note 'Milk' and 'Buy two.'", {"title": "Milk", "body": "Buy two."}),
        ({"email": str, "url": str}, "a@b.org, https://x.org/a?b.", {"email": "a@b.org", "url": "https://x.org/a?b"}),
        (
            {"origin": str, "destination": str},
            "trains from Rome to New York",
            {"origin": "Rome", "destination": "New York"},
        ),
        ({"text": str, "language": str}, "translate 'good day' to French", {"text": "good day", "language": "French"}),
        ({"path": str}, "open docs/intro.md now", {"path": "docs/intro.md"}),
        ({"customer": str}, "what did we sell to Ada Lovelace?", {"customer": "Ada Lovelace"}),
        ({"query": (str, "")}, "find cats", {"query": "cats"}),
        ({"low": (int, 0), "color": (Color | None, None)}, "nothing", {}),
        ({}, "anything", {}),
        (
            {"from_unit": Literal["feet", "meters"], "to_unit": Literal["feet", "meters"]},
            "how many feet are 3 meters",
            {"from_unit": "meters", "to_unit": "feet"},
        ),
    ],
)
def test_arguments_go_together(parameters: dict[str, Any], text: str, expected: Any) -> None:
    assert fill_arguments(tool("f", **parameters)["input_schema"], text, text) == expected


ENDLESS = {
    "type": "object",
    "properties": {"x": {"$ref": "#/$defs/N"}},
    "required": ["x"],
    "$defs": {"N": {"type": "object", "properties": {"n": {"$ref": "#/$defs/N"}}, "required": ["n"]}},
}


@pytest.mark.parametrize(
    "schema",
    [
        ENDLESS,
        {"properties": {"x": {"$ref": "#/$defs/gone"}}, "required": ["x"]},
        {"properties": {"x": {"$ref": "https://example.com/s"}}, "required": ["x"]},
        {"properties": {"x": {"$ref": "#/properties/x"}}, "required": ["x"]},
        {"properties": {"x": False}, "required": ["x"]},
        {"properties": {"x": {"type": "string", "pattern": "^[^\\s\\S]$"}}, "required": ["x"]},
        {"properties": {"x": {"type": "number", "minimum": 3, "maximum": 2}}, "required": ["x"]},
        {"properties": {"x": {"type": "hologram"}}, "required": ["x"]},
    ],
)
async def test_a_schema_that_cannot_be_filled_is_answered_in_words(schema: dict[str, Any]) -> None:
    with pytest.raises(CannotFill):
        fill_arguments(schema, "a", "a")
    turn = await turn_of(ask(user("a"), tools=[{"name": "impossible", "input_schema": schema}]))
    assert turn.stop_reason == "end_turn"
    assert "`impossible`" in text_of(turn)


KEYWORDS: dict[str, st.SearchStrategy[Any]] = {
    "type": st.sampled_from(["string", "integer", "number", "boolean", "null", "array", "object", ["string", "null"]]),
    "enum": st.lists(st.text() | st.integers() | st.none()),
    "const": st.text(),
    "default": st.text(),
    "format": st.sampled_from(["date", "uuid", "email", "nonsense"]),
    "pattern": st.sampled_from(["^a", "[", "\\d+"]),
    "minimum": st.integers(-5, 5),
    "maxLength": st.integers(0, 5),
    "minItems": st.integers(0, 3),
    "uniqueItems": st.booleans(),
    "description": st.text(),
}


def extended(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    properties = st.dictionaries(st.sampled_from(["query", "city", "from", "count", "ok"]), inner)
    more = {"properties": properties, "items": inner, "anyOf": st.lists(inner), "allOf": st.lists(inner)}
    required = {"required": st.lists(st.sampled_from(["query", "count", "x"]))}
    return st.fixed_dictionaries({}, optional=KEYWORDS | more | required)


SCHEMAS = st.recursive(st.fixed_dictionaries({}, optional=KEYWORDS) | st.booleans(), extended, max_leaves=8)


@given(schema=extended(SCHEMAS), text=st.text() | st.sampled_from(["5 miles to km", "Is it 'so' in Rome?"]))
def test_any_schema_and_text_are_filled_or_refused_and_always_alike(schema: dict[str, Any], text: str) -> None:
    tools = [{"name": "f", "description": "d", "input_schema": schema}, SEARCH]
    assert choose_tools(tools, text)
    try:
        filled = fill_arguments(schema, text, text)
    except CannotFill:
        return
    assert isinstance(filled, dict)
    assert fill_arguments(schema, text, text) == filled


# The conversation ---------------------------------------------------------------------------------------------------


async def test_it_streams_thinking_then_text_in_small_pieces() -> None:
    *shown, turn = await events_of(ask(user("Convert 5 miles to km")))
    assert isinstance(turn, Turn)
    assert [block["type"] for block in turn.content] == ["thinking", "text", "tool_use"]
    thoughts = [one.text for one in shown if isinstance(one, ThinkingDelta)]
    texts = [one.text for one in shown if isinstance(one, TextDelta)]
    assert "".join(thoughts) == turn.content[0]["thinking"]
    assert "".join(texts) == turn.content[1]["text"]
    assert len(thoughts) > 5
    assert all(texts + thoughts)
    assert (turn.model, turn.broken_inputs) == ("demo", {})
    assert turn.usage.input_tokens > turn.usage.output_tokens > 10


async def two_steps(text: str, results: dict[str, Any], tools: list[dict[str, Any]] = ALL) -> tuple[list[Any], Turn]:
    """`results` by the names of tools: content, or an exception's message."""
    first = await turn_of(ask(user(text), tools=tools))
    given = []
    for block in first.content:
        if block["type"] == "tool_use":
            result = results[block["name"]]
            failed = {"is_error": True} if isinstance(result, Exception) else {}
            given.append({"type": "tool_result", "tool_use_id": block["id"], "content": str(result)} | failed)
    messages = [user(text), {"role": "assistant", "content": first.content}, user(given)]
    second = await turn_of(ask(*messages, tools=tools))
    return [*messages, {"role": "assistant", "content": second.content}], second


@pytest.mark.parametrize(
    ("result", "told"),
    [
        ('{"value": 8.0467200001, "unit": "km"}', ["**value**: 8.04672", "**unit**: km"]),
        ("plain words", ["gave plain words."]),
        ("null", ["no result"]),
        ("[]", ["no result"]),
        ('["a", "b"]', ["2 results", "- a", "- b"]),
        ('{"items": [{"title": "Cursors", "score": 0.5, "tags": ["x", "y"]}]}', ["**Cursors**", "score: 0.5", "x, y"]),
        (str(list(range(100))), ["100 results", "- 4", "and 95 more"]),
        ('{"ok": true, "deep": {"a": [1]}}', ["**ok**: yes", '{"a": [1]}']),
        ("long " * 5000, [" …"]),
        ("[" * 5000, ["[[[", " …"]),
        (ValueError("no such unit"), ["failed: no such unit"]),
    ],
)
async def test_results_become_a_short_readable_answer(result: Any, told: list[str]) -> None:
    transcript, answer = await two_steps("Convert 5 miles to km", {"convert_units": result})
    for part in [*told, "`convert_units`", "demo model"]:
        assert part in text_of(answer)
    assert len(text_of(answer)) < 1500
    assert (answer.stop_reason, calls_of(answer)) == ("end_turn", [])
    validate_transcript(transcript, sent=None)


async def test_parallel_results_are_told_one_by_one_and_the_transcript_is_valid() -> None:
    results = {"get_weather": '{"sky": "clear"}', "search_docs": RuntimeError("offline")}
    transcript, answer = await two_steps("What's the weather in Rome and search the docs for cursors", results)
    assert "`get_weather` gave" in text_of(answer)
    assert "`search_docs` failed: offline" in text_of(answer)
    validate_transcript(transcript, sent=None)
    again = await turn_of(ask(*transcript, user("And the weather in Oslo?")))
    assert calls_of(again) == [("get_weather", {"city": "Oslo"})]
    ids = [
        block["id"]
        for message in [*transcript, {"content": again.content}]
        for block in blocks(message)
        if "id" in block
    ]
    assert len(set(ids)) == 3


def blocks(message: dict[str, Any]) -> list[dict[str, Any]]:
    return message["content"] if isinstance(message["content"], list) else []


async def test_content_blocks_as_a_result() -> None:
    first = await turn_of(ask(user("Convert 5 miles to km")))
    content = [{"type": "text", "text": "a picture:"}, {"type": "image", "source": {}}]
    result = {"type": "tool_result", "tool_use_id": first.content[-1]["id"], "content": content}
    answer = await turn_of(ask(user("x"), {"role": "assistant", "content": first.content}, user([result])))
    assert "a picture:\n(image)" in text_of(answer)


async def test_a_new_question_behind_repaired_results_is_answered() -> None:
    first = await turn_of(ask(user("Convert 5 miles to km")))
    repair = {"type": "tool_result", "tool_use_id": first.content[-1]["id"], "content": "interrupted", "is_error": True}
    behind = user([repair, {"type": "text", "text": "weather in Oslo"}])
    turn = await turn_of(ask(user("x"), {"role": "assistant", "content": first.content}, behind))
    assert calls_of(turn) == [("get_weather", {"city": "Oslo"})]


async def test_without_tools_it_answers_in_words() -> None:
    turn = await turn_of(ask(user("Tell me a joke"), tools=[]))
    assert turn.stop_reason == "end_turn"
    assert "Tell me a joke" in text_of(turn)
    assert "demo model" in text_of(turn)
    image = {"type": "image", "source": {"type": "url", "url": "u"}}
    assert text_of(await turn_of(ask(user([image]), tools=[])))


async def test_a_huge_text_is_looked_at_in_part() -> None:
    ((_, arguments),) = calls_of(await turn_of(ask(user("a1@" * 300_000))))
    assert len(arguments["query"]) == 2000


async def test_the_same_request_gets_the_same_answer() -> None:
    assert await events_of(ask(user("weather in Oslo"))) == await events_of(ask(user("weather in Oslo")))


async def test_thinking_must_come_back_as_it_was() -> None:
    first = await turn_of(ask(user("weather in Oslo")))
    first.content[0]["thinking"] += "!"
    with pytest.raises(ProviderError, match="changed"):
        await turn_of(ask(user("x"), {"role": "assistant", "content": first.content}, user("y")))
    foreign = {"type": "thinking", "thinking": "mine", "signature": "EqRk"}
    await turn_of(ask(user("x"), {"role": "assistant", "content": [foreign]}, user("y")))
