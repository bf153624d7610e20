"""What a body has to be before it says anything: JSON that every store holds as it was sent."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.requests import Request

from runyard.errors import InvalidArgs, UnsupportedMediaType
from runyard.text import NESTING_MAX
from runyard_gateway.bodies import PROBLEMS_MAX, NoJsonObject, as_object, check_media_type

clean = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"))
storable = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | clean,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(clean, inner, max_size=4),
    max_leaves=12,
)


def fields_refused(body: bytes) -> list[str]:
    with pytest.raises(InvalidArgs) as caught:
        as_object(body)
    assert not isinstance(caught.value, NoJsonObject)
    fields: list[str] = caught.value.fields["fields"]
    assert all(field in caught.value.message for field in fields)
    assert caught.value.message.isprintable()
    return fields


@given(st.dictionaries(clean, storable, max_size=4), st.booleans())
def test_what_stores_hold_comes_as_it_was_sent(body: dict[str, Any], is_ascii: bool) -> None:
    assert as_object(json.dumps(body, ensure_ascii=is_ascii).encode()) == body


@pytest.mark.parametrize(
    ("body", "read"),
    [
        (b"", {}),
        (b" \r\n{}\t", {}),
        (b'{"a": "\\\\u0000 \\\\ud800"}', {"a": "\\u0000 \\ud800"}),
        (b'{"a": "\\ud83d\\ude42"}', {"a": "\N{SLIGHTLY SMILING FACE}"}),
        (b'{"a": 18446744073709551615, "b": -9223372036854775808}', {"a": 2**64 - 1, "b": -(2**63)}),
        (b'{"a": 1e308, "b": -0, "c": 1E2}', {"a": 1e308, "b": 0, "c": 100.0}),
        (b'{"a": {"x": 1}, "b": {"x": 1}}', {"a": {"x": 1}, "b": {"x": 1}}),
    ],
)
def test_what_only_looks_odd_is_taken(body: bytes, read: dict[str, Any]) -> None:
    assert as_object(body) == read


@pytest.mark.parametrize(
    "body",
    [
        *(b"[]", b"null", b'"x"', b"1", b"{", b"{}{}", b"{'a': 1}", b'{"a": 1,}', b'{"a": 01}', b"\x00"),
        *(b'{"a": NaN}', b'{"a": -Infinity}', b'{"a": "\xff"}', b'{"a": "\xed\xa0\x80"}', b'{"a": "\x00"}'),
        *(b"\xef\xbb\xbf{}", "{}".encode("utf-16"), "{}".encode("utf-32"), b"\x1f\x8b\x08\x00", b"a=1&b=2"),
        *(b"[" * 100_000, b'{"a":' * 100_000, b"[" * 100_000 + b"]" * 100_000),
    ],
    ids=lambda body: f"{body[:20]!r}-{len(body)}",
)
def test_what_is_no_json_object(body: bytes) -> None:
    with pytest.raises(NoJsonObject):
        as_object(body)


@pytest.mark.parametrize("dirty", [r"a\u0000b", r"\ud800", r"\udc00 x", r"\ude42\ud83d", r"é\u0000"])
@pytest.mark.parametrize(
    ("body", "fields"),
    [
        ('{"a": "%s"}', ["a"]),
        ('{"b": 1, "a": [{"x": ["%s"]}]}', ["a"]),
        ('{"a": {"%s": 1}}', ["a"]),
        ('{"a": "%s", "b": "fine", "c": {"d": "%s"}}', ["a", "c"]),
        ('{"as": {"userId": "%s", "tenantId": "t"}}', ["as.userId"]),
        ('{"as": "%s"}', ["as"]),
        ('{"as": [{"userId": "%s"}]}', ["as"]),
    ],
)
def test_text_that_no_store_holds_is_named(dirty: str, body: str, fields: list[str]) -> None:
    assert fields_refused(body.replace("%s", dirty).encode()) == fields


def test_a_name_that_no_store_holds_is_named_as_it_can_be() -> None:
    assert fields_refused(rb'{"a\u0000": 1, "\ud800": 2}') == [
        "a\N{REPLACEMENT CHARACTER}",
        "\N{REPLACEMENT CHARACTER}",
    ]


@pytest.mark.parametrize(
    "number", ["18446744073709551616", "-9223372036854775809", "1e309", "-1e309", "9" * 5000, "-" + "9" * 5000]
)
def test_numbers_that_would_become_others_are_named(number: str) -> None:
    assert fields_refused(f'{{"a": 1, "b": [{number}]}}'.encode()) == ["b"]


@pytest.mark.parametrize(
    ("body", "fields"),
    [
        (b'{"a": 1, "a": 1}', ["a"]),
        (b'{"a": 1, "b": 2, "\\u0061": 3}', ["a"]),
        (b'{"a": {"b": 1, "b": 2}}', ["a"]),
        (b'{"as": {"userId": "x", "userId": "y"}}', ["as"]),
        (b'{"a": {"as": {"userId": {"b": 1, "b": 2}}}}', ["a"]),
    ],
)
def test_what_two_readers_would_read_differently_is_named(body: bytes, fields: list[str]) -> None:
    assert fields_refused(body) == fields


def test_a_name_given_twice_is_found_among_as_many_as_a_body_holds() -> None:
    names = [f'"{at}":0' for at in range(100_000)]  # looked for pair by pair it would hold the gateway for minutes
    assert fields_refused(f"{{{','.join([*names, names[-1]])}}}".encode()) == ["99999"]


@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"x":', "}")])
def test_how_deep_a_body_may_be(opening: str, closing: str) -> None:
    def nested(levels: int) -> bytes:
        return f'{{"a": {opening * (levels - 1)}1{closing * (levels - 1)}}}'.encode()

    assert as_object(nested(NESTING_MAX))
    assert fields_refused(nested(NESTING_MAX + 1)) == ["a"]


def test_a_body_that_is_wrong_everywhere_is_told_so_in_a_few_words() -> None:
    body = json.dumps({f"k{at}": "\0" for at in range(PROBLEMS_MAX + 1)})
    with pytest.raises(InvalidArgs) as caught:
        as_object(body.encode())
    assert len(caught.value.message) < 100


@pytest.mark.parametrize("given", ["application/json", "APPLICATION/JSON; charset=utf-8", "application/ld+json", None])
def test_what_is_said_to_be_json(given: str | None) -> None:
    check_media_type(request(given))


@pytest.mark.parametrize(
    "given", ["", "text/plain", "application/x-www-form-urlencoded", "application/jsonp", "multipart/form-data", "json"]
)
def test_what_is_said_to_be_something_else(given: str) -> None:
    with pytest.raises(UnsupportedMediaType):
        check_media_type(request(given))


def request(content_type: str | None) -> Request:
    headers = [] if content_type is None else [(b"content-type", content_type.encode())]
    return Request({"type": "http", "method": "POST", "path": "/", "headers": headers})
