"""The cleaner: what a database, a stream or a provider cannot hold is replaced, all the rest is left alone."""

import json
import math
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runyard.text import TRUNCATED, clean_json, clean_text, truncate_bytes

LOST = "\N{REPLACEMENT CHARACTER}"

any_text = st.text(st.characters() | st.characters(categories=["Cs"]) | st.just("\x00"))
clean = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"))
any_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | any_text,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(any_text, inner, max_size=4),
    max_leaves=12,
)


@pytest.mark.parametrize(
    ("dirty", "expected"),
    [
        ("a\x00b", f"a{LOST}b"),
        ("\x00", LOST),
        ("\x00\x00", LOST * 2),
        ("é\x00", f"é{LOST}"),
        ("a\ud800b", f"a{LOST}b"),
        ("\udc00\ud800", LOST * 2),
        ("cut \ud83d", f"cut {LOST}"),
        ("\ud83d\udc26", "🐦"),
        ("\ud800\ud83d\udc26\udc00", f"{LOST}🐦{LOST}"),
        ("\ufeff\ud800", f"\ufeff{LOST}"),
    ],
)
def test_what_cannot_be_stored_is_replaced(dirty: str, expected: str) -> None:
    assert clean_text(dirty) == expected


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="empty"),
        "\\u0000",
        '{"a": "\\u0000"}',
        "\\ud800",
        "\x01\x07\x1b[0m\x7f",
        "a\r\n\u2028\u0085b",
        "\ufeff\ufffe\uffff\ufffd",
        "👩‍👩‍👧 日本 é e\u0301",
    ],
)
def test_all_else_is_left_alone(text: str) -> None:
    assert clean_text(text) is text


@given(any_text)
def test_clean_text_can_be_encoded(text: str) -> None:
    cleaned = clean_text(text)
    assert cleaned.encode().decode() == cleaned
    assert "\x00" not in cleaned
    assert clean_text(cleaned) is cleaned


@given(clean)
def test_clean_text_stays_as_it_is(text: str) -> None:
    assert clean_text(text) is text


@pytest.mark.parametrize(
    ("dirty", "expected"),
    [
        ({"k\x00": ["v\x00", {"deep\ud800": "\x00"}]}, {f"k{LOST}": [f"v{LOST}", {f"deep{LOST}": LOST}]}),
        ([math.nan, math.inf, -math.inf, 1.5, -0.0], [None, None, None, 1.5, -0.0]),
        ([2**64 - 1, -(2**63), 2**64, -(2**63) - 1], [2**64 - 1, -(2**63), str(2**64), str(-(2**63) - 1)]),
        ([True, False, None, 0, 1], [True, False, None, 0, 1]),
        ({"a\x00": 1, f"a{LOST}": 2}, {f"a{LOST}": 2}),
        ({"z": 1, "a": {"y": 2, "b": 3}}, {"z": 1, "a": {"y": 2, "b": 3}}),
    ],
)
def test_json_becomes_strict_json(dirty: Any, expected: Any) -> None:
    assert json.dumps(clean_json(dirty)) == json.dumps(expected), "as text: it tells True from 1, and orders of keys"


@given(any_json)
def test_any_json_can_be_written_and_read_back(value: Any) -> None:
    cleaned = clean_json(value)
    assert json.dumps(orjson.loads(orjson.dumps(cleaned))) == json.dumps(cleaned)
    assert clean_json(cleaned) == cleaned


def test_cleaning_leaves_the_value_it_was_given() -> None:
    value = {"k\x00": ["v\x00", math.nan]}
    clean_json(value)
    assert list(value) == ["k\x00"]
    assert value["k\x00"][0] == "v\x00"


@pytest.mark.parametrize("value", [(1,), {1}, b"a", object(), {"a": {1, 2}}, [b"a"]], ids=repr)
def test_what_is_no_json_is_refused(value: Any) -> None:
    with pytest.raises(TypeError, match="not a JSON value"):
        clean_json(value)


@given(clean, st.integers(len(TRUNCATED), 64))
def test_a_cut_text_is_a_beginning_and_the_mark(text: str, limit_bytes: int) -> None:
    cut = truncate_bytes(text, limit_bytes)
    if len(text.encode()) <= limit_bytes:
        assert cut == text
        return
    assert len(cut.encode()) <= limit_bytes
    assert cut.endswith(TRUNCATED)
    kept = cut.removesuffix(TRUNCATED)
    assert text.startswith(kept)
    following = text[len(kept)].encode()
    assert len(kept.encode()) + len(following) > limit_bytes - len(TRUNCATED), "no more is cut than must be"


@pytest.mark.parametrize("character", ["a", "é", "日", "🐦"])
def test_every_limit_cuts_between_characters(character: str) -> None:
    text = character * 65_536
    for limit_bytes in range(65_530, 65_540):
        cut = truncate_bytes(text, limit_bytes)
        if len(text.encode()) > limit_bytes:
            assert set(cut.removesuffix(TRUNCATED)) == {character}
            assert limit_bytes - len(character.encode()) < len(cut.encode()) <= limit_bytes
