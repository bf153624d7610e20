"""Requests are built from stored rows: whatever was stored, the Messages API takes what is sent."""

import copy
import itertools
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies as st
from tests.fakes.rows import rows, text, thinking, tool_use
from tests.standin import validate_transcript

from runyard.blocks import INTERRUPTED, call_ids, text_of, tool_result, tool_uses
from runyard.transcript import request_messages

ANSWER = [text("Found 3 hits.")]
BLANK = st.sampled_from(["", " ", "\n\t ", "\u2003"])
WORDS = st.sampled_from(["hi", "a\r\nb", "trailing ", "\u00e9\U0001f1e9\U0001f1ea"])


def interrupted(call_id: str) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": call_id, "content": INTERRUPTED, "is_error": True}


def server_call(call_id: str, query: str = "pylon") -> dict[str, Any]:
    return {"type": "server_tool_use", "id": call_id, "name": "web_search", "input": {"query": query}}


def server_result(call_id: str) -> dict[str, Any]:
    return {"type": "web_search_tool_result", "tool_use_id": call_id, "content": []}


def test_a_plain_conversation_goes_as_it_is() -> None:
    stored = rows(("user", "hi"), ("assistant", ANSWER), ("user", "more"))
    assert request_messages(stored) == [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": ANSWER},
        {"role": "user", "content": "more"},
    ]


def test_a_call_that_a_crash_left_open_is_answered_in_front_of_the_next_input() -> None:
    stored = rows(("user", "hi"), ("assistant", [text("Let me check."), tool_use("tu_dead")]), ("user", "go on"))
    assert request_messages(stored)[-1] == {"role": "user", "content": [interrupted("tu_dead"), text("go on")]}


def test_results_lead_in_the_order_of_the_calls() -> None:
    given = [tool_result("c", "3", is_error=False), text("wait"), tool_result("a", "1", is_error=False)]
    stored = rows(("user", "hi"), ("assistant", [tool_use("a"), tool_use("b"), tool_use("c")]), ("user", given))
    assert request_messages(stored)[-1]["content"] == [given[2], interrupted("b"), given[0], text("wait")]


@pytest.mark.parametrize(
    ("asked_for", "sent"),
    [("get weather", "get_weather"), ("fs.read", "fs_read"), ("", "_"), ("x" * 300, "x" * 128), ("read-2", "read-2")],
)
def test_a_name_that_no_tool_can_have_goes_back_as_one_that_the_api_takes(asked_for: str, sent: str) -> None:
    call = {**tool_use("a"), "name": asked_for}
    stored = rows(("user", "hi"), ("assistant", [call]), ("user", [interrupted("a")]))
    messages = request_messages(stored)
    assert messages[1]["content"] == [{**call, "name": sent}]
    assert stored[1].content == [{**call, "name": asked_for}]
    validate_transcript(messages)


def test_a_result_is_found_in_the_second_of_two_user_rows() -> None:
    given = tool_result("a", "1", is_error=False)
    stored = rows(("user", "hi"), ("assistant", [tool_use("a")]), ("user", "and then?"), ("user", [given]))
    assert request_messages(stored)[-1]["content"] == [given, text("and then?")]


def test_adjacent_user_rows_become_one_turn() -> None:
    stored = rows(("user", "one"), ("user", [text("two")]), ("user", "three"))
    assert request_messages(stored) == [{"role": "user", "content": [text("one"), text("two"), text("three")]}]


def test_an_unanswered_model_turn_between_user_rows_leaves_no_gap() -> None:
    stored = rows(("user", "one"), ("assistant", []), ("user", "two"))
    assert request_messages(stored) == [{"role": "user", "content": [text("one"), text("two")]}]


def test_blank_text_beside_a_call_is_left_out() -> None:
    stored = rows(
        ("user", "hi"),
        ("assistant", [text(""), tool_use("a"), text(" \n")]),
        ("user", [tool_result("a", "", is_error=False)]),
    )
    assert request_messages(stored)[1:] == [
        {"role": "assistant", "content": [tool_use("a")]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a"}]},
    ]


def test_whitespace_around_words_is_kept() -> None:
    stored = rows(("user", "hi"), ("assistant", [text(" half a sentence, ")]), ("user", "go on"))
    assert request_messages(stored)[1]["content"] == [text(" half a sentence, ")]


def test_thinking_comes_back_exactly_and_in_its_place() -> None:
    turn = [
        thinking("Look it up.", "AbC+/="),
        thinking("", "only a signature"),
        {"type": "redacted_thinking", "data": "opaque"},
        tool_use("a", q="\u00e9"),
    ]
    stored = rows(("user", "hi"), ("assistant", turn), ("user", [tool_result("a", "1", is_error=False)]))
    assert request_messages(stored)[1]["content"] == turn


def test_an_answer_with_half_a_thought_goes_back_without_its_thinking() -> None:
    cut = [thinking("whole"), text("So:"), thinking("and the", signature="")]
    stored = rows(("user", "hi"), ("assistant", cut), ("user", "go on"))
    assert request_messages(stored)[1]["content"] == [text("So:")]


def test_an_answer_that_is_only_a_thought_is_no_turn() -> None:
    stored = rows(("user", "hi"), ("assistant", [thinking("whole"), text("")]), ("user", "go on"))
    assert request_messages(stored) == [{"role": "user", "content": [text("hi"), text("go on")]}]


def test_a_paused_turn_goes_back_unchanged() -> None:
    paused = [text("Searching."), server_call("srvtoolu_1", query="pylon")]
    stored = rows(("user", "hi"), ("assistant", paused))
    assert request_messages(stored)[-1] == {"role": "assistant", "content": paused}


def test_parts_of_a_paused_turn_are_one_turn() -> None:
    first, second = [server_call("srvtoolu_1")], [server_result("srvtoolu_1"), text("Found it.")]
    stored = rows(("user", "hi"), ("assistant", first), ("assistant", second), ("user", "thanks"))
    assert request_messages(stored)[1] == {"role": "assistant", "content": first + second}


def test_a_server_call_that_never_ended_is_left_out() -> None:
    stored = rows(("user", "hi"), ("assistant", [text("Searching."), server_call("srvtoolu_1")]), ("user", "well?"))
    assert request_messages(stored)[1]["content"] == [text("Searching.")]
    alone = rows(("user", "hi"), ("assistant", [server_call("srvtoolu_1")]), ("user", "well?"))
    assert request_messages(alone) == [{"role": "user", "content": [text("hi"), text("well?")]}]


def test_a_server_call_beside_one_of_ours_may_end_later() -> None:
    turn = [server_call("srvtoolu_1"), tool_use("a")]
    stored = rows(("user", "hi"), ("assistant", turn), ("user", [tool_result("a", "1", is_error=False)]))
    assert request_messages(stored)[1]["content"] == turn


def test_calls_of_server_tools_are_not_ours() -> None:
    turn = [server_call("srvtoolu_1"), tool_use("a"), server_result("srvtoolu_1")]
    assert call_ids(turn) == ["a"]
    assert tool_uses("plain text") == []


def test_the_text_of_a_turn_is_its_text_blocks() -> None:
    assert text_of([thinking("no"), text("a "), tool_use("a"), text("b")]) == "a b"
    assert text_of("plain") == "plain"


@st.composite
def stored_rows(draw: st.DrawFn) -> list[tuple[str, Any]]:
    """Rows as invocations of every fate leave them: calls with results, with some, with none; blanks; cut thoughts."""
    numbers = itertools.count()

    def blocks() -> list[dict[str, Any]]:
        number = next(numbers)
        search = [server_call(f"srvtoolu_{number}"), server_result(f"srvtoolu_{number}")]
        kinds = [
            [text(draw(WORDS))],
            [text(draw(BLANK))],
            [thinking(draw(st.sampled_from(["", "hm"])), draw(st.sampled_from(["", "c2ln"])))],
            [{"type": "redacted_thinking", "data": "opaque"}],
            [tool_use(f"toolu_{number}")],
            search,
            search[:1],
        ]
        return draw(st.sampled_from(kinds))

    turns: list[tuple[str, Any]] = [("user", draw(WORDS))]
    for _ in range(draw(st.integers(0, 6))):
        answer = [block for _ in range(draw(st.integers(0, 5))) for block in blocks()]
        turns.append(("assistant", answer))
        results = [tool_result(call_id, draw(WORDS), is_error=draw(st.booleans())) for call_id in call_ids(answer)]
        kept = draw(st.permutations([result for result in results if draw(st.booleans())]))
        contents = [kept, draw(WORDS), draw(BLANK)][: draw(st.integers(1, 3))]
        turns += [("user", content) for content in draw(st.permutations(contents))]
    return [*turns, ("user", draw(WORDS))]


@hypothesis.given(stored_rows())
@hypothesis.settings(max_examples=300)
def test_whatever_is_stored_the_request_is_valid(turns: list[tuple[str, Any]]) -> None:
    stored = rows(*turns)
    before = copy.deepcopy(stored)
    messages = request_messages(stored)
    validate_transcript(messages)
    assert stored == before
    for turn, answer in itertools.pairwise(messages):
        if calls := call_ids(turn["content"]):
            results = answer["content"][: len(calls)]
            assert [block["tool_use_id"] for block in results] == calls
