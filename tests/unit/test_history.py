"""History that a caller brings along: what could be sent to a model is taken, the rest is named."""

from typing import Any

import pytest
from tests.standin import validate_transcript

from runyard.errors import InvalidArgs
from runyard.history import HistoryMessage, check_history
from runyard.transcript import request_messages

CALL = {"type": "tool_use", "id": "t1", "name": "search", "input": {"q": "swifts"}}
OTHER_CALL = {"type": "tool_use", "id": "t2", "name": "search", "input": {}}
RESULT = {"type": "tool_result", "tool_use_id": "t1", "content": "three pages"}
OTHER_RESULT = {"type": "tool_result", "tool_use_id": "t2", "content": [{"type": "text", "text": "none"}]}
THINKING = {"type": "thinking", "thinking": "", "signature": "sig"}
PAGE = {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "one"}}
IMAGE = {"type": "image", "source": {"type": "url", "url": "https://example.org/a.png"}}


def text(said: str) -> dict[str, Any]:
    return {"type": "text", "text": said}


def user(*content: Any) -> HistoryMessage:
    return HistoryMessage(role="user", content=content[0] if isinstance(content[0], str) else list(content))


def model(*content: Any) -> HistoryMessage:
    return HistoryMessage(role="assistant", content=content[0] if isinstance(content[0], str) else list(content))


BEGUN = [user("hi")]


@pytest.mark.parametrize(
    "messages",
    [
        [],
        [user("hi")],
        [user("hi"), model("hello"), user("more")],
        [user("hi"), user("again"), model("a"), model("b")],
        [user(text("look"), IMAGE)],
        [user({"type": "document", "source": {"type": "file", "file_id": "file_1"}, "citations": {"enabled": True}})],
        [user({"type": "document", "source": {"type": "content", "content": [text("one"), IMAGE]}})],
        [user({**text("long"), "cache_control": {"type": "ephemeral", "ttl": "1h"}})],
        [user("hi"), model(THINKING, text("so"), CALL), user(RESULT, text("and?")), model("fine")],
        [user(PAGE), model({**text("so"), "citations": None}, {**CALL, "caller": {"type": "direct"}}), user(RESULT)],
        [user("hi"), model(CALL, OTHER_CALL), user(OTHER_RESULT, RESULT)],
        [
            user("hi"),
            model({"type": "redacted_thinking", "data": "x"}, CALL),
            user({"type": "tool_result", "tool_use_id": "t1"}),
        ],
    ],
)
def test_what_a_model_takes_is_taken(messages: list[HistoryMessage]) -> None:
    check_history(messages)
    validate_transcript(request_messages([*messages, user("next")]))


def test_results_may_answer_the_transcript_they_are_appended_to() -> None:
    check_history([user(RESULT)], behind=[user("hi"), model(CALL)])


@pytest.mark.parametrize(
    ("messages", "names"),
    [
        ([user(" ")], "messages[0].content"),
        ([user("hi"), HistoryMessage(role="assistant", content=[])], "messages[1].content"),
        ([user(text(" "))], "messages[0].content[0].text"),
        ([user({"type": "text"})], "messages[0].content[0].text"),
        ([user({"type": "image"})], "messages[0].content[0].source"),
        ([user({"type": "video", "source": {}})], "messages[0].content[0].type"),
        ([user({})], "messages[0].content[0].type"),
        ([user(text("a"), {"type": "video"})], "messages[0].content[1].type"),
        ([user(CALL)], "messages[0].content[0].type"),
        ([user(RESULT)], "messages[0].content[0].tool_use_id"),
        ([model(CALL)], "t1"),
        ([model(CALL), user("no answer")], "t1"),
        ([model(CALL), model("on"), user(RESULT)], "t1"),
        ([model(CALL, OTHER_CALL), user(RESULT)], "t2"),
        ([model(CALL), user(RESULT, RESULT)], "messages[1].content[1].tool_use_id"),
        ([model(CALL), user(RESULT), model(CALL), user(RESULT)], "messages[2].content[0].id"),
        ([model(CALL), user({"type": "tool_result", "tool_use_id": "t1", "is_error": True})], "content[0].content"),
        ([model(CALL), user({**RESULT, "content": 7})], "messages[1].content[0].content"),
        ([model(CALL), user({**RESULT, "content": [CALL]})], "content[0].type"),
        ([model({**CALL, "input": "{}"})], "messages[0].content[0]: input"),
        (
            [model({"type": "tool_use", "id": "t1", "input": {}})],
            'messages[0].content[0]: Missing required field "name"',
        ),
        ([model({"type": "thinking", "thinking": "x"}, text("y"))], 'Missing required field "signature"'),
        ([model({**THINKING, "colour": "red"}, text("y"))], "messages[0].content[0]: Unknown field"),
        ([model({**text("a"), "citations": "none"})], "messages[0].content[0]: citations"),
        ([model({**CALL, "cache_control": "long"})], "messages[0].content[0]: cache_control"),
        ([model(CALL), user({**RESULT, "is_error": "no"})], "messages[1].content[0]: is_error"),
        ([model(CALL), user({**RESULT, "colour": "red"})], "messages[1].content[0]: Unknown field"),
        ([user(PAGE | {"source": PAGE["source"] | {"data": ""}})], "messages[0].content[0]: source.data"),
        ([model(text("y"), THINKING)], "messages[0].content[1].type"),
        ([model(IMAGE)], "messages[0].content[0].type"),
        ([model({**CALL, "id": "call|1"})], "messages[0].content[0].id"),
        ([model({**CALL, "name": "get weather"})], "messages[0].content[0].name"),
        ([user({**text("a"), "colour": "red"})], "messages[0].content[0]: Unknown field"),
        (
            [user({"type": "image", "source": {"type": "base64", "media_type": "image/tiff", "data": "eA=="}})],
            "media_type",
        ),
        ([model(CALL), user({**RESULT, "content": [{**text("a"), "colour": "red"}]})], "content[0].content[0]"),
    ],
)
def test_what_a_model_refuses_is_named(messages: list[HistoryMessage], names: str) -> None:
    with pytest.raises(InvalidArgs) as refused:
        check_history(messages, behind=BEGUN)
    assert names in refused.value.message


def test_the_user_begins() -> None:
    with pytest.raises(InvalidArgs, match=r"messages\[0\].role"):
        check_history([model("hello")])
    check_history([model("hello")], behind=BEGUN)


def test_the_id_of_a_call_is_not_used_again() -> None:
    with pytest.raises(InvalidArgs, match=r"messages\[0\].content\[0\].id"):
        check_history([model(CALL), user(RESULT)], behind=[user("hi"), model(CALL), user(RESULT)])


def test_an_open_call_of_the_transcript_must_be_answered_first() -> None:
    with pytest.raises(InvalidArgs, match="t1"):
        check_history([user("hi")], behind=[user("hi"), model(CALL)])
