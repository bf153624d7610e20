"""Bytes of a Messages API stream -> one turn, exactly as the model produced it."""

import functools
import json
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from runyard.blocks import CALL_ID
from runyard.errors import ProviderError, ProviderUnavailable
from runyard.text import NESTING_MAX
from runyard_workers.providers.accumulator import TurnAccumulator
from runyard_workers.providers.model import Activity, ModelEvent, TextDelta, ThinkingDelta, Turn, UsageSoFar
from runyard_workers.providers.reading import read_turn
from runyard_workers.providers.sse import EventSplitter

pytestmark = pytest.mark.anyio

START_USAGE = {"input_tokens": 5, "output_tokens": 1}


def event(name: str, **fields: Any) -> bytes:
    return f"event: {name}\ndata: {json.dumps({'type': name, **fields})}\n\n".encode()


def start(usage: dict[str, Any] = START_USAGE, **fields: Any) -> bytes:
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": "claude-x-20260101", "content": []}
    return event("message_start", message={**message, "usage": usage, **fields})


def block(index: int, content: dict[str, Any], *deltas: dict[str, Any]) -> bytes:
    return (
        event("content_block_start", index=index, content_block=content)
        + b"".join(event("content_block_delta", index=index, delta=delta) for delta in deltas)
        + event("content_block_stop", index=index)
    )


def text(index: int, *pieces: str, **fields: Any) -> bytes:
    content = {"type": "text", "text": "", **fields}
    return block(index, content, *({"type": "text_delta", "text": piece} for piece in pieces))


def call(index: int, *pieces: str, given: Any = None, kind: str = "tool_use", name: str = "lookup") -> bytes:
    content = {"type": kind, "id": f"toolu_{index}", "name": name, "input": {} if given is None else given}
    return block(index, content, *({"type": "input_json_delta", "partial_json": piece} for piece in pieces))


def end(stop_reason: str | None = "end_turn", *, usage: Any = None, **delta: Any) -> bytes:
    fields = {"stop_reason": stop_reason, "stop_sequence": None, **delta}
    return event("message_delta", delta=fields, usage=usage or {"output_tokens": 7}) + event("message_stop")


def shown(chunks: Iterable[bytes]) -> list[ModelEvent]:
    """What the chunks show, up to and including the turn."""
    splitter, accumulator = EventSplitter(), TurnAccumulator(model="asked-for")
    return [accumulator.feed(one) for chunk in chunks for one in splitter.feed(chunk)]


def turn(*parts: bytes) -> Turn:
    *deltas, last = shown([b"".join(parts)])
    assert isinstance(last, Turn)
    texts = "".join(delta.text for delta in deltas if isinstance(delta, TextDelta))
    assert texts == "".join(one["text"] for one in last.content if one["type"] == "text")
    assert all(delta.text for delta in deltas if isinstance(delta, TextDelta | ThinkingDelta))
    return last


def pieces(body: bytes, size: int) -> list[bytes]:
    return [body[at : at + size] for at in range(0, len(body), size)]


def cut_at(whole: Any, cuts: list[int]) -> list[Any]:
    places = sorted({0, len(whole), *(cut for cut in cuts if cut < len(whole))})
    return [whole[left:right] for left, right in pairwise(places)]


# Every boundary -----------------------------------------------------------------------------------------------------

BODIES = {
    "text": start() + text(0, "Hé", "llo", " wörld\u2028 👩‍👩‍👧", "\n\n", " ") + end(),
    "tools": start() + text(0, "Let me.") + call(1, "", '{"q": "py', 'lon ✓"}') + call(2) + end("tool_use"),
    "thinking": start()
    + block(
        0,
        {"type": "thinking", "thinking": "", "signature": ""},
        {"type": "thinking_delta", "thinking": "hm…"},
        {"type": "signature_delta", "signature": "AAA"},
        {"type": "signature_delta", "signature": "BBB="},
    )
    + block(1, {"type": "redacted_thinking", "data": "c2VjcmV0"})
    + call(2, "{}")
    + end("tool_use"),
    "noise": b"\xef\xbb\xbf: hello\n\nretry: 5\nid: 7\n\n"
    + start()
    + event("ping")
    + b":keepalive\n\nevent: from_the_future\ndata: {]\n\n"
    + b"data: [DONE]\n\n\n\n"
    + text(0, "a", "b")
    + event("from_the_future", index=0)
    + end(),
}


def normal(body: bytes) -> Turn:
    last = shown([body])[-1]
    assert isinstance(last, Turn)
    return last


@pytest.mark.parametrize("line_end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_the_same_turn_at_every_chunk_size(body: bytes, line_end: str) -> None:
    whole = shown([body])
    other = body.replace(b"\n", line_end.encode())
    for size in (*range(1, 40), 64, 1000, len(body)):
        assert shown(pieces(other, size)) == whole


@given(body=st.sampled_from(list(BODIES.values())), cuts=st.lists(st.integers(0, 3000)), data=st.data())
def test_the_same_turn_for_any_boundaries_and_line_ends(body: bytes, cuts: list[int], data: st.DataObject) -> None:
    *lines, unfinished = body.split(b"\n")
    drawn = data.draw(st.lists(st.sampled_from([b"\n", b"\r\n", b"\r"]), min_size=len(lines), max_size=len(lines)))
    mixed = b""
    for line, line_end in zip(lines, drawn, strict=True):
        # CR and LF of two ends of lines would be one end.
        mixed += line + (b"\r" if mixed.endswith(b"\r") and not line and line_end == b"\n" else line_end)
    mixed += unfinished
    assert shown(cut_at(mixed, cuts)) == shown([body])


@given(st.text(), st.lists(st.integers(0, 200)))
def test_any_text_in_any_deltas(written: str, cuts: list[int]) -> None:
    assert turn(start(), text(0, *cut_at(written, cuts)), end()).content == [
        {"type": "text", "text": written.replace("\0", "�")}
    ]


async def test_the_reader_ends_with_the_turn_and_shows_life_in_between() -> None:
    body = start() + text(0, "hi") + end()

    async def chunks() -> Any:
        yield b": comment\n\n"
        yield body[:10]
        yield body[10:]
        raise AssertionError("nothing is read beyond the turn")

    events = [one async for one in read_turn(chunks(), model="asked-for")]
    assert events[:2] == [Activity(ping=True), Activity(ping=True)]
    assert events[2:] == shown([body])


@pytest.mark.parametrize("body", [b"", start(), start() + text(0, "par"), start() + text(0, "all") + end()[:-40]])
async def test_a_stream_that_ends_early_is_a_failure(body: bytes) -> None:
    async def chunks() -> Any:
        yield body

    with pytest.raises(ProviderUnavailable, match="ended early") as failure:
        [one async for one in read_turn(chunks(), model="asked-for")]
    assert failure.value.retryable


# Content as it was produced -----------------------------------------------------------------------------------------


def test_an_empty_text_block_stays_in_the_stored_turn() -> None:
    assert turn(start(), text(0), text(1, ""), text(2, "  "), call(3, "{}"), end("tool_use")).content == [
        {"type": "text", "text": ""},
        {"type": "text", "text": ""},
        {"type": "text", "text": "  "},
        {"type": "tool_use", "id": "toolu_3", "name": "lookup", "input": {}},
    ]


def test_a_turn_without_blocks() -> None:
    assert turn(start(), end()).content == []


def test_the_end_of_a_turn() -> None:
    last = turn(start(), text(0, "I can't"), end("refusal"))
    assert (last.stop_reason, last.model) == ("refusal", "claude-x-20260101")
    assert turn(start(model=None), end()).model == "asked-for"


def test_text_and_thinking_that_come_with_the_start_are_shown() -> None:
    body = start() + text(0, "b", text="a") + end()
    assert [one for one in shown([body]) if isinstance(one, TextDelta)] == [TextDelta("a"), TextDelta("b")]
    assert turn(body).content == [{"type": "text", "text": "ab"}]
    body = start() + block(0, {"type": "thinking", "thinking": "hm", "signature": "s"}) + end()
    assert ThinkingDelta("hm") in shown([body])
    assert turn(body).content == [{"type": "thinking", "thinking": "hm", "signature": "s"}]


def test_thinking_with_nothing_but_a_signature() -> None:
    content = {"type": "thinking", "thinking": "", "signature": ""}
    last = turn(start(), block(0, content, {"type": "signature_delta", "signature": "sig="}), call(1), end("tool_use"))
    assert last.content[0] == {"type": "thinking", "thinking": "", "signature": "sig="}


def test_signatures_and_redacted_data_never_change() -> None:
    odd = "a\u2028\r\n\t é\U0001f600\\u0000"
    content = {"type": "thinking", "thinking": "", "signature": odd}
    body = start() + block(0, content, {"type": "signature_delta", "signature": odd})
    last = turn(body, block(1, {"type": "redacted_thinking", "data": odd}), end())
    assert last.content[0]["signature"] == odd + odd
    assert last.content[1] == {"type": "redacted_thinking", "data": odd}


def test_a_paused_turn_keeps_the_server_tools_input_and_results() -> None:
    found = {
        "type": "web_search_tool_result",
        "tool_use_id": "toolu_1",
        "caller": {"type": "direct"},
        "content": [{"type": "web_search_result", "url": "u", "encrypted_content": "Zm9v", "page_age": None}],
    }
    last = turn(
        start(),
        text(0, "Searching."),
        call(1, '{"que', 'ry": "x"}', kind="server_tool_use", name="web_search"),
        block(2, found),
        end("pause_turn"),
    )
    assert last.stop_reason == "pause_turn"
    assert last.content[1:] == [
        {"type": "server_tool_use", "id": "toolu_1", "name": "web_search", "input": {"query": "x"}},
        found,
    ]


def test_citations_are_added_to_their_block() -> None:
    cited = {"type": "char_location", "cited_text": "x", "document_index": 0}
    deltas = [{"type": "citations_delta", "citation": cited}, {"type": "text_delta", "text": "so"}]
    last = turn(start(), block(0, {"type": "text", "text": "", "citations": None}, *deltas, deltas[0]), end())
    assert last.content == [{"type": "text", "text": "so", "citations": [cited, cited]}]
    assert turn(start(), text(0, "so", citations=None), end()).content == [
        {"type": "text", "text": "so", "citations": None}
    ]


def test_blocks_and_deltas_of_the_future_are_kept_or_told() -> None:
    unknown = {"type": "hologram", "text": "not answer text", "depth": {"z": 1}}
    with capture_logs() as logs:
        last = turn(start(), block(0, unknown, {"type": "laser_delta", "beam": "secret"}), text(1, "a"), end())
    assert last.content == [unknown, {"type": "text", "text": "a"}]
    assert [(log["event"], log["delta"]) for log in logs] == [("block delta unknown", "laser_delta")]
    assert "secret" not in str(logs)


# Text from outside --------------------------------------------------------------------------------------------------


def test_a_character_split_over_two_deltas_is_whole() -> None:
    # json.dumps writes the emoji as two escapes; here each delta has one of them.
    body = start() + text(0, "a\ud83d", "\ude00b", "\ud83d", "\ude00") + end()
    assert [one.text for one in shown([body]) if isinstance(one, TextDelta)] == ["a", "\U0001f600b", "\U0001f600"]
    assert turn(body).content[0]["text"] == "a\U0001f600b\U0001f600"


def test_thinking_with_a_character_split_over_two_deltas_is_whole() -> None:
    pieces = [{"type": "thinking_delta", "thinking": piece} for piece in ("\ufffda\ud83d", "\ude00b")]
    whole = turn(start(), block(0, THINKING, *pieces, SIGNED), call(1), end("tool_use"))
    assert whole.content[0] == {"type": "thinking", "thinking": "\ufffda😀b", "signature": "sig"}
    unsigned = turn(start(), block(0, THINKING, {"type": "thinking_delta", "thinking": "a\0"}), end())
    assert unsigned.content[0]["thinking"] == "a\ufffd", "it is never sent back"


def test_halves_without_the_other_half_are_replaced() -> None:
    body = start() + text(0, "\ude00a\ud83d", "b\ud83d") + text(1, "\ude00") + end()
    assert [one["text"] for one in turn(body).content] == ["�a�b�", "�"]
    unfinished = start() + text(0, "a\ud83d").removesuffix(event("content_block_stop", index=0)) + end()
    assert turn(unfinished).content == [{"type": "text", "text": "a�"}]


def test_nul_is_replaced_and_its_literal_spelling_is_not() -> None:
    arguments = json.dumps({"a\0": {"b": ["\0", "\\u0000"]}})
    last = turn(start(), text(0, "x\0y", "\\u0000"), call(1, *pieces_of(arguments)), end("tool_use"))
    assert last.content[0]["text"] == "x�y\\u0000"
    assert last.content[1]["input"] == {"a�": {"b": ["�", "\\u0000"]}}


def pieces_of(written: str) -> list[str]:
    return [written[at : at + 3] for at in range(0, len(written), 3)]


def test_values_that_no_store_holds_are_made_storable() -> None:
    last = turn(start(), call(0, '{"n": NaN, "i": -Infinity, "big": 1', "0" * 30, "}"), end("tool_use"))
    assert last.content[0]["input"] == {"n": None, "i": None, "big": "1" + "0" * 30}
    result = {"type": "code_execution_tool_result", "content": {"value": 10**30, "other": 2**63}}
    assert turn(start(), block(0, result), end()).content[0]["content"] == {"value": str(10**30), "other": 2**63}


@pytest.mark.parametrize(
    "piece",
    ["a\r", "\nb", "c\n", "\n\n", "x\u2028y", "z\u0085", "\u000b", " lead", "event: result\ndata: {}\n\n", "\r\n"],
)
def test_line_ends_inside_a_delta_are_text(piece: str) -> None:
    for ascii_only in (True, False):
        delta = {"type": "text_delta", "text": piece}
        payload = json.dumps(
            {"type": "content_block_delta", "index": 0, "delta": delta}, ensure_ascii=ascii_only
        ).encode()
        body = start() + text(0)[: -len(event("content_block_stop", index=0))]
        body += b"event: content_block_delta\ndata: " + payload + b"\n\n" + event("content_block_stop", index=0) + end()
        assert normal(body).content == [{"type": "text", "text": piece}]


def test_data_in_several_lines_is_joined() -> None:
    payload = (
        b'event: content_block_delta\ndata: {"type": "content_block_delta", "index": 0,\ndata:"delta":\ndata: {"type": '
    )
    body = start() + text(0)[: -len(event("content_block_stop", index=0))]
    body += payload + b'"text_delta", "text": "ab"}}\n\n' + event("content_block_stop", index=0) + end()
    assert normal(body).content == [{"type": "text", "text": "ab"}]


# Tool inputs --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("parts", "given", "expected"),
    [
        ([""], None, {}),
        ([], None, {}),
        ([" ", "\n"], None, {}),
        ([], {"q": "whole"}, {"q": "whole"}),
        ([""], {"q": "whole"}, {"q": "whole"}),
        ([], "", {}),
        (['{"a": "{\\"b\\"', ': 1}"}'], None, {"a": '{"b": 1}'}),
    ],
)
def test_a_call_without_deltas_has_the_input_of_its_start(parts: list[str], given: Any, expected: Any) -> None:
    last = turn(start(), call(0, *parts, given=given), end("tool_use"))
    assert last.content[0]["input"] == expected
    assert last.broken_inputs == {}


@pytest.mark.parametrize("broken", ['{"a": ', "{'a': 1}", "[1]", '"text"', "null", "{} {}", "[" * 3000, "9" * 5000])
def test_a_broken_input_is_told_to_the_model(broken: str) -> None:
    last = turn(start(), call(0, broken), call(1, '{"ok": true}'), end("tool_use"))
    assert [one["input"] for one in last.content] == [{}, {"ok": True}]
    assert list(last.broken_inputs) == ["toolu_0"]
    assert "not called" in last.broken_inputs["toolu_0"]
    assert "output limit" not in last.broken_inputs["toolu_0"]


@pytest.mark.parametrize(("levels", "broken"), [(NESTING_MAX, []), (NESTING_MAX + 1, ["toolu_0"])])
def test_an_input_too_deep_for_a_row_or_an_answer_is_broken(levels: int, broken: list[str]) -> None:
    deep = '{"a": ' + "[" * (levels - 1) + "]" * (levels - 1) + "}"
    assert list(turn(start(), call(0, deep), end("tool_use")).broken_inputs) == broken


CUT = '{"path": "a.txt", "content": "abc'


@pytest.mark.parametrize("stopped", [True, False])
def test_the_output_limit_cuts_a_call(stopped: bool) -> None:
    cut = call(1, CUT)
    if not stopped:
        cut = cut.removesuffix(event("content_block_stop", index=1))
    last = turn(start(), call(0, '{"path": "b.txt"}'), cut, end("max_tokens"))
    assert [one["input"] for one in last.content] == [{"path": "b.txt"}, {}]
    assert list(last.broken_inputs) == ["toolu_1"]
    assert "output limit" in last.broken_inputs["toolu_1"]
    assert "missing" not in last.broken_inputs["toolu_1"]


def test_a_call_cut_before_any_input_must_not_run() -> None:
    last = turn(start(), call(0), call(1, ""), end("max_tokens"))
    assert list(last.broken_inputs) == ["toolu_1"]
    last = turn(start(), call(0, given={"whole": 1}), end("max_tokens"))
    assert last.broken_inputs == {}


def test_a_whole_call_before_the_limit_may_run() -> None:
    last = turn(start(), call(0), call(1, "{}"), text(2, "And n"), end("max_tokens"))
    assert last.broken_inputs == {}


def test_the_context_window_cuts_a_call_too() -> None:
    last = turn(start(), call(0, CUT), end("model_context_window_exceeded"))
    assert "model_context_window_exceeded" in last.broken_inputs["toolu_0"]


def test_a_broken_call_of_a_server_tool_is_not_ours_to_answer() -> None:
    last = turn(start(), call(0, CUT, kind="server_tool_use"), end("max_tokens"))
    assert (last.content[0]["input"], last.broken_inputs) == ({}, {})


# Usage --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("input_again", [27, None, 0, "absent"])
def test_usage_is_cumulative(input_again: Any) -> None:
    first = {"output_tokens": 20} | ({} if input_again == "absent" else {"input_tokens": input_again})
    begin = {
        "input_tokens": 27,
        "cache_read_input_tokens": 100,
        "cache_creation_input_tokens": None,
        "output_tokens": 1,
    }
    more = event("message_delta", delta={}, usage=first)
    usage = turn(start(begin), text(0, "a"), more, end(usage={"output_tokens": 47, "input_tokens": None})).usage
    assert usage.to_dict() == {
        "input_tokens": 27,
        "output_tokens": 47,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 100,
    }
    assert (usage + usage).cache_read_input_tokens == 200
    assert type(usage).from_dict(usage.to_dict()) == usage


def test_a_count_in_mid_turn_ends_no_block() -> None:
    unfinished = start() + text(0, "a").removesuffix(event("content_block_stop", index=0))
    more = event("message_delta", delta={"stop_reason": None}, usage={"output_tokens": 2})
    more += event("content_block_delta", index=0, delta={"type": "text_delta", "text": "b"})
    assert turn(unfinished, more, end()).content == [{"type": "text", "text": "ab"}]


def test_a_provider_that_counts_at_the_end_only() -> None:
    usage = turn(start({}), end(usage={"input_tokens": 9, "output_tokens": 4})).usage
    assert (usage.input_tokens, usage.output_tokens) == (9, 4)


def test_what_a_stream_that_breaks_off_has_cost() -> None:
    body = (
        start({"input_tokens": 27, "output_tokens": 1})
        + text(0, "half a")
        + event("message_delta", delta={}, usage={"output_tokens": 3})
    )
    counted = [one for one in shown([body]) if isinstance(one, UsageSoFar)]
    assert [(one.usage.input_tokens, one.usage.output_tokens) for one in counted] == [(27, 1), (27, 3)]
    assert {one.model for one in counted} == {"claude-x-20260101"}


# Failures -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "passing"),
    [
        ("overloaded_error", True),
        ("api_error", True),
        ("rate_limit_error", True),
        ("timeout_error", True),
        ("invalid_request_error", False),
        ("authentication_error", False),
        ("billing_error", False),
    ],
)
@pytest.mark.parametrize("before", [b"", start(), start() + text(0, "x"), start() + call(0, CUT)[:-60]])
def test_an_error_event_is_a_failure(kind: str, passing: bool, before: bytes) -> None:
    said = event("error", error={"type": kind, "message": "No\0pe"}, request_id="req_1")
    with pytest.raises(ProviderError) as failure:
        shown([before + said])
    error = failure.value
    assert (error.retryable, error.fields) == (passing, {"status": 200, "type": kind})
    assert "No�pe" in error.message or "ANTHROPIC_API_KEY" in error.message


@pytest.mark.parametrize(
    "given", ["toolu_old", "toolu_0", "", "call|1", "\N{LATIN SMALL LETTER U WITH DIAERESIS}", 7, None]
)
def test_a_call_whose_id_cannot_be_sent_back_gets_another(given: Any) -> None:
    """Compatible providers count from 0 in each answer, repeat an id within one, or send none."""
    body = (
        start()
        + call(0)
        + block(
            1,
            {"type": "tool_use", "id": given, "name": "f", "input": {}},
            {"type": "input_json_delta", "partial_json": "{"},
        )
    )
    accumulator = TurnAccumulator(model="asked-for", taken=["toolu_old"])
    *_, last = [accumulator.feed(one) for one in EventSplitter().feed(body + end("tool_use"))]
    assert isinstance(last, Turn)
    first, second = (one["id"] for one in last.content)
    assert first == "toolu_0"
    assert CALL_ID.fullmatch(second)
    assert second not in ("toolu_0", "toolu_old", given)
    assert list(last.broken_inputs) == [second]


@pytest.mark.parametrize("odd", [5, ["end_turn"], {"a": 1}, True])
def test_a_stop_reason_that_is_no_text_is_none(odd: Any) -> None:
    with pytest.raises(ProviderUnavailable, match="without a stop reason"):
        shown([start() + end(odd)])


def test_what_a_provider_says_of_itself_is_cleaned() -> None:
    assert turn(start(), text(0, "x"), end("a\0b")).stop_reason == "a\N{REPLACEMENT CHARACTER}b"


@pytest.mark.parametrize("odd", [True, -1, 2**64 - 1, 1.5, "7"])
def test_a_count_that_counts_nothing_is_none(odd: Any) -> None:
    assert turn(start(), end(usage={"output_tokens": odd})).usage.output_tokens == START_USAGE["output_tokens"]


def test_an_error_event_of_an_odd_shape_is_a_failure() -> None:
    for data in ('{"error": "x"}', '{"message": "x"}', '{"type": "error", "error": {"type": {}, "message": [1]}}'):
        with pytest.raises(ProviderError):
            shown([f"event: error\ndata: {data}\n\n".encode()])
    with pytest.raises(ProviderError) as failure:
        shown([event("error", error={"type": "a\ud800", "message": "b\ud800"})])
    assert failure.value.fields["type"] == "a\N{REPLACEMENT CHARACTER}", "it is stored beside the run's error"


THINKING = {"type": "thinking", "thinking": "", "signature": ""}
SIGNED = {"type": "signature_delta", "signature": "sig"}
DEEP: Any = functools.reduce(lambda inner, _: [inner], range(NESTING_MAX + 1), "SECRET")


def delta(index: Any, value: Any) -> bytes:
    return event("content_block_delta", index=index, delta=value)


@pytest.mark.parametrize(
    "body",
    [
        text(0, "SECRET"),
        start() + text(0, "x") + text(0, "SECRET"),
        start() + delta(0, {"type": "text_delta", "text": "SECRET"}),
        start() + text(0, "x") + delta(0, {"type": "text_delta", "text": "SECRET"}),
        start() + event("content_block_stop", index=3),
        start() + event("content_block_stop"),
        start() + b'event: content_block_stop\ndata: {"index": 7}\n\n',
        start() + event("content_block_start", index=0),
        start() + event("content_block_start", index=0, content_block={"text": ""}),
        start() + block(0, {"type": "tool_use", "id": "toolu_1", "input": {}}),
        start() + block(0, {"type": "text", "text": ""}, {"type": "text_delta"}),
        start() + b"event: content_block_delta\ndata: {SECRET}\n\n",
        start() + block(0, {"type": "web_search_tool_result", "content": DEEP}),
        start() + block(0, THINKING, {"type": "thinking_delta", "thinking": "SECRET\0"}, SIGNED),
        start() + block(0, THINKING, {"type": "thinking_delta", "thinking": "SECRET\ud83d"}, SIGNED),
        start() + block(0, {"type": "text", "text": ""}, {"type": "citations_delta", "citation": {"a": DEEP}}),
        start() + b"event: message_stop\ndata: []\n\n",
        start() + b"event: content_block_delta\ndata: \xff\xfe\n\n",
        start()
        + b'event: content_block_start\ndata: {"type": "content_block_start", "x": '
        + b"[" * 1020
        + b"]" * 1020
        + b"}\n\n",
        start()
        + end().removesuffix(event("message_stop"))
        + text(0, "SECRET").removesuffix(event("content_block_stop", index=0))
        + event("message_stop"),
        event("message_start"),
        start() + end(None),
        start() + event("message_stop"),
    ],
)
def test_malformed_events_are_failures_without_content(body: bytes) -> None:
    with pytest.raises(ProviderUnavailable) as failure:
        shown([body])
    assert "malformed" in failure.value.message
    assert "SECRET" not in failure.value.message
