"""The judge compares with what the stand-in sent: thinking, signatures, paused turns."""

from typing import Any

import pytest
from tests.standin import InvalidTranscript, validate
from tests.standin.ledger import Ledger

Block = dict[str, Any]

THOUGHT = {"type": "thinking", "thinking": "First I look.", "signature": "sig-1"}
UNSEEN = {"type": "thinking", "thinking": "", "signature": "sig-2"}
REDACTED = {"type": "redacted_thinking", "data": "abc"}
SAID = {"type": "text", "text": "Let me check."}
BLANK = {"type": "text", "text": ""}
CALL = {"type": "tool_use", "id": "toolu_1", "name": "lookup", "input": {}}
CALL_2 = {"type": "tool_use", "id": "toolu_2", "name": "lookup", "input": {}}
SEARCH = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "pylon"}}
FOUND = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []}


def sent(*answers: list[Block], stop_reason: str = "end_turn", complete: bool = True) -> Ledger:
    ledger = Ledger()
    for number, blocks in enumerate(answers):
        message = ledger.open(f"msg_{number}")
        for block in blocks:
            ledger.add(message, block)
        message.stop_reason = stop_reason
        message.complete = complete
    return ledger


def judge(ledger: Ledger, *turns: list[Block], end: bool = True) -> None:
    """Judge a conversation of these assistant turns, each call answered; `end`: a user's word comes last."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": "go"}]
    for turn in turns:
        messages.append({"role": "assistant", "content": turn})
        calls = [block["id"] for block in turn if block["type"] == "tool_use"]
        results = [{"type": "tool_result", "tool_use_id": call, "content": "ok"} for call in calls]
        messages.append({"role": "user", "content": results or "and?"})
    validate({"model": "m", "max_tokens": 1, "messages": messages if end else messages[:-1]}, sent=ledger)


@pytest.mark.parametrize(
    "blocks",
    [
        [THOUGHT, SAID, CALL],
        [UNSEEN, CALL],
        [REDACTED, CALL],
        [THOUGHT, REDACTED, CALL, CALL_2],
        [THOUGHT, CALL, UNSEEN, CALL_2],
        [THOUGHT, SAID],
        [SAID, CALL],
    ],
)
def test_takes_back_what_it_sent(blocks: list[Block]) -> None:
    judge(sent(blocks), blocks)


def test_takes_back_an_answer_without_its_blank_text() -> None:
    judge(sent([THOUGHT, BLANK, CALL]), [THOUGHT, CALL])


def test_takes_the_turns_of_a_whole_conversation() -> None:
    judge(sent([THOUGHT, CALL], [UNSEEN, CALL_2], [SAID]), [THOUGHT, CALL], [UNSEEN, CALL_2], [SAID])


def test_takes_one_turn_made_of_two_answers() -> None:
    judge(sent([THOUGHT, SEARCH], [UNSEEN, CALL]), [THOUGHT, SEARCH, FOUND, UNSEEN, CALL])


def test_an_earlier_turn_may_leave_all_its_thinking_out() -> None:
    judge(sent([THOUGHT, CALL], [SAID]), [CALL], [SAID])


def test_a_turn_without_calls_may_leave_all_its_thinking_out() -> None:
    judge(sent([THOUGHT, SAID]), [SAID])


def test_an_answer_without_thinking_may_lose_a_call() -> None:
    judge(sent([CALL, CALL_2]), [CALL_2])


def test_calls_of_elsewhere_are_nobody_elses_business() -> None:
    judge(sent(), [CALL])


def test_of_an_answer_that_broke_off_a_beginning_may_stay() -> None:
    judge(sent([THOUGHT, CALL, CALL_2], complete=False), [THOUGHT, CALL])


MODIFIED = "`thinking` or `redacted_thinking` blocks in the latest assistant message cannot be modified."


@pytest.mark.parametrize(
    ("answer", "turn", "message"),
    [
        ([THOUGHT, CALL], [{**THOUGHT, "signature": "other"}, CALL], "content.0: Invalid `signature` in `thinking`"),
        ([THOUGHT, CALL], [{**THOUGHT, "signature": ""}, CALL], "content.0: Invalid `signature` in `thinking`"),
        ([THOUGHT, CALL], [{**THOUGHT, "signature": "sig-1 "}, CALL], "content.0: Invalid `signature`"),
        ([THOUGHT, CALL], [{**THOUGHT, "thinking": "First I look"}, CALL], "content.0: Invalid `signature`"),
        ([THOUGHT, CALL], [{**THOUGHT, "thinking": ""}, CALL], "content.0: Invalid `signature`"),
        ([REDACTED, CALL], [{**REDACTED, "data": "abd"}, CALL], "content.0: Invalid `data` in `redacted_thinking`"),
        ([THOUGHT, CALL], [{"type": "thinking", "thinking": "a"}, CALL], "content.0.thinking.signature: Field"),
        ([THOUGHT, CALL], [CALL], "content.0.type: Expected `thinking` or `redacted_thinking`, but found `tool_use`."),
        ([THOUGHT, SAID, CALL], [SAID, CALL], "content.1.type: Expected `thinking` or `redacted_thinking`"),
        ([THOUGHT, REDACTED, CALL], [THOUGHT, CALL], f"content.0: {MODIFIED}"),
        ([THOUGHT, REDACTED, CALL], [REDACTED, CALL], f"content.0: {MODIFIED}"),
        ([THOUGHT, REDACTED, CALL], [REDACTED, THOUGHT, CALL], f"content.0: {MODIFIED}"),
        ([THOUGHT, CALL], [CALL, THOUGHT, SAID], "content.0.type: Expected `thinking`"),
        ([THOUGHT, CALL, UNSEEN, CALL_2], [THOUGHT, CALL, CALL_2], f"content.0: {MODIFIED}"),
        ([THOUGHT, CALL, CALL_2], [THOUGHT, CALL_2, CALL], f"content.0: {MODIFIED}"),
        ([THOUGHT, CALL], [THOUGHT, THOUGHT, CALL], f"content.0: {MODIFIED}"),
    ],
)
def test_refuses_thinking_that_changed(answer: list[Block], turn: list[Block], message: str) -> None:
    with pytest.raises(InvalidTranscript) as refusal:
        judge(sent(answer), turn)
    assert refusal.value.message.startswith(f"messages.1.{message}")


def test_refuses_half_of_the_thinking_of_an_earlier_turn() -> None:
    with pytest.raises(InvalidTranscript, match="cannot be modified"):
        judge(sent([THOUGHT, REDACTED, CALL], [SAID]), [THOUGHT, CALL], [SAID])


@pytest.mark.parametrize(
    "turn",
    [
        [SAID, SEARCH],
        [BLANK, SAID, SEARCH],
    ],
)
def test_takes_a_paused_turn_back_as_it_was(turn: list[Block]) -> None:
    judge(sent(turn, stop_reason="pause_turn"), [block for block in turn if block is not BLANK], end=False)


def test_takes_a_turn_that_paused_twice() -> None:
    ledger = sent([SAID, SEARCH], [FOUND, SAID], stop_reason="pause_turn")
    judge(ledger, [SAID, SEARCH, FOUND, SAID], end=False)


@pytest.mark.parametrize(
    ("turn", "message"),
    [
        ([SAID, {**SEARCH, "input": {}}], "messages.1: `web_search` tool use with id `srvtoolu_1` was found without"),
        ([SEARCH], "messages.1: `web_search` tool use"),
        ([SAID], "This model does not support assistant message prefill."),
        ([{"type": "text", "text": "Let me"}], "This model does not support assistant message prefill."),
    ],
)
def test_refuses_a_paused_turn_that_changed(turn: list[Block], message: str) -> None:
    with pytest.raises(InvalidTranscript) as refusal:
        judge(sent([SAID, SEARCH], stop_reason="pause_turn"), turn, end=False)
    assert refusal.value.message.startswith(message)


def test_a_turn_that_did_not_pause_does_not_go_on() -> None:
    with pytest.raises(InvalidTranscript, match="does not support assistant message prefill"):
        judge(sent([SAID]), [SAID], end=False)
