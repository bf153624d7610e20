"""Tool results: JSON text or blocks, clean, within the limit."""

import base64
import json
from dataclasses import dataclass
from decimal import Decimal

import orjson
import pytest

from runyard import Content, Refused
from runyard.text import TRUNCATED
from runyard_workers.results import (
    RESULT_LIMIT_BYTES,
    ToolResult,
    UnserializableResult,
    describe_exception,
    error_result,
    to_json,
    to_result,
)

MARK = "\N{REPLACEMENT CHARACTER}"
FLAG = "\N{REGIONAL INDICATOR SYMBOL LETTER D}\N{REGIONAL INDICATOR SYMBOL LETTER E}"
FAMILY = "\N{MAN}\N{ZERO WIDTH JOINER}\N{WOMAN}\N{ZERO WIDTH JOINER}\N{GIRL}"


@dataclass
class Hit:
    title: str
    score: float


class Silent(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


class Shouted(str):
    __slots__ = ()


@pytest.mark.parametrize(
    ("value", "content"),
    [
        ("text", "text"),
        ("", ""),
        ('{"a": 1}', '{"a": 1}'),
        (Shouted("shout"), "shout"),
        ("a\0b", f"a{MARK}b"),
        ("\\u0000", "\\u0000"),
        (None, "null"),
        (True, "true"),
        (5, "5"),
        (float("nan"), "null"),
        (Decimal("1.10"), '"1.10"'),
        ([Hit("a\0", float("inf"))], '[{"title":"a' + MARK + '","score":null}]'),
        ({1: {2}}, '{"1":[2]}'),
        (b"bytes", '"bytes"'),
        ([], "[]"),
    ],
)
def test_a_value_becomes_text(value, content):
    result = to_result(value, tool="probe")
    assert result == ToolResult(content=content)
    assert type(result.content) is str


def test_the_conversion_of_streamed_data_is_the_same():
    assert to_json({"hit": Hit("a", 1.5)}) == {"hit": {"title": "a", "score": 1.5}}


@pytest.mark.parametrize("value", [object(), {"a": [Silent()]}, (n for n in "a"), Hit, [Content([])]], ids=type)
def test_what_has_no_json_form_names_the_tool_and_the_type(value):
    with pytest.raises(UnserializableResult, match=r"^Tool 'probe' returned .*(object|Silent|generator|Hit|Content)"):
        to_result(value, tool="probe")


@pytest.mark.parametrize("excess_bytes", range(-3, 4))
@pytest.mark.parametrize("character", ["x", "ä", "€", "😀", FLAG, FAMILY], ids=ascii)
@pytest.mark.parametrize("shape", ["text", "error", "json"])
def test_a_long_text_is_cut_between_characters(character, excess_bytes, shape):
    size_bytes = RESULT_LIMIT_BYTES + excess_bytes
    around_bytes = len('[""]') if shape == "json" else 0
    count, rest = divmod(size_bytes - around_bytes, len(character.encode()))
    text = "x" * rest + character * count
    match shape:
        case "text":
            result = to_result(text, tool="probe")
        case "error":
            result = error_result(text)
        case _:
            result = to_result([text], tool="probe")
    assert isinstance(result.content, str)
    content = result.content.encode()
    assert len(content) <= RESULT_LIMIT_BYTES
    was_cut = excess_bytes > 0
    assert result.content.endswith(TRUNCATED) is was_cut
    if was_cut:
        assert len(content) > RESULT_LIMIT_BYTES - len(character.encode()) - len(TRUNCATED)


def test_ten_megabytes_are_cut_too():
    result = to_result("x" * 10_000_000, tool="probe")
    assert len(result.content) == RESULT_LIMIT_BYTES
    assert result.content.endswith(TRUNCATED)


def text_block(text):
    return {"type": "text", "text": text}


def image_block(size_bytes):
    data = base64.b64encode(b"i" * size_bytes).decode()
    return {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data}}


def blocks_of(*blocks):
    content = to_result(Content(blocks), tool="probe").content
    assert isinstance(content, list)
    assert len(orjson.dumps(content)) <= RESULT_LIMIT_BYTES
    return content


def test_blocks_that_fit_stay_as_they_are():
    blocks = [text_block("a"), image_block(40_000), {**text_block("b"), "cache_control": {"type": "ephemeral"}}]
    assert blocks_of(*blocks) == blocks
    assert blocks_of(text_block("a\0")) == [text_block(f"a{MARK}")]


def test_empty_text_blocks_are_left_out_and_nothing_is_an_empty_text():
    assert blocks_of(text_block(""), text_block("a"), text_block(" \n")) == [text_block("a")]
    assert to_result(Content([]), tool="probe").content == ""
    assert to_result(Content([text_block("")]), tool="probe").content == ""


def test_a_text_block_that_is_too_long_is_cut_and_ends_the_list():
    first, second = blocks_of(text_block("a" * 60_000), text_block("b" * 60_000), text_block("c"))
    assert first == text_block("a" * 60_000)
    assert second["text"].endswith("b" + TRUNCATED)
    assert len(second["text"]) > 5_000


@pytest.mark.parametrize("character", ["x", "ä", "😀", '"', "n\n", "\x01", FAMILY], ids=ascii)
@pytest.mark.parametrize("before", [0, 30_000, 65_300, 65_400, 65_450, 65_500])
def test_a_list_fits_as_json_wherever_it_is_cut(character, before):
    kept = blocks_of(text_block("a" * before), text_block(character * 70_000), text_block("never"))
    assert kept[-1]["text"].endswith(TRUNCATED)
    assert all(block["text"] != "never" for block in kept)


def test_an_image_that_does_not_fit_becomes_a_note_and_the_rest_stays():
    blocks = [text_block("before"), image_block(60_000), text_block("after"), image_block(1_000)]
    note, *rest = blocks_of(*blocks)[1:]
    assert note["type"] == "text"
    assert "image" in note["text"]
    assert note["text"].endswith(TRUNCATED)
    assert rest == blocks[2:]


def test_many_blocks_that_do_not_fit_still_end_within_the_limit():
    kept = blocks_of(*[image_block(60_000)] * 2_000)
    assert kept[-1]["text"].endswith(TRUNCATED)
    kept = blocks_of(*[text_block("x")] * 10_000)
    assert kept[-1]["text"].endswith(TRUNCATED)


@pytest.mark.parametrize(
    ("exception", "text"),
    [
        (ValueError("no such order"), "ValueError: no such order"),
        (ValueError(), "ValueError"),
        (KeyError("a"), "KeyError: 'a'"),
        (Silent("secret"), "Silent"),
        (SystemExit(1), "SystemExit: 1"),
        (KeyboardInterrupt(), "KeyboardInterrupt"),
        (ExceptionGroup("two", [ValueError("inner")]), "ExceptionGroup: two (1 sub-exception): ValueError: inner"),
        (
            ExceptionGroup("outer", [ExceptionGroup("two", [Refused("SENT", "too late"), OSError()])]),
            "ExceptionGroup: outer (1 sub-exception): SENT: too late",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_an_exception_is_its_type_and_message(exception, text):
    assert describe_exception(exception) == text


def test_errors_are_clean_and_never_empty():
    assert error_result("bad\0") == ToolResult(content=f"bad{MARK}", is_error=True)
    for message in ("", " \n"):
        assert str(error_result(message).content).strip()
        assert error_result(message).is_error


def test_every_json_text_that_is_not_cut_is_strict_json():
    def refuse(constant):
        raise ValueError(constant)

    value = {"nan": float("nan"), "big": 10**30, "nul\0": ["\ud800", {1, 2}], None: b"\xff"}
    assert json.loads(to_result(value, tool="probe").content, parse_constant=refuse)


def test_a_refusal_is_told_by_its_code() -> None:
    assert describe_exception(Refused("ORDER_UNKNOWN", "no such order", order=5)) == "ORDER_UNKNOWN: no such order"
