"""How an invocation ends: its result, its stream's ending, and results that leave no call unanswered."""

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from tests.fakes.rows import INVOCATION, RUN, claim, row, rows, steering, text, tool_use

from runyard.blocks import CANCELLED, INTERRUPTED
from runyard.db.boundaries import Settlement
from runyard.db.records import Call, Input, Message
from runyard.db.turns import Totals
from runyard.errors import MaxSteps, ProviderUnavailable
from runyard.frames import FrameEvent
from runyard.ids import InvocationId
from runyard.lifecycle import settling
from runyard.lifecycle.endings import committed_text, ending, kept_last, stored_ending
from runyard.runs import CallState, FinishReason, RunEvent

CLAIM = claim()
RUN_ROW, INVOCATION_ROW = CLAIM.run, CLAIM.invocation
TOTALS = replace(Totals.stored(RUN_ROW, INVOCATION_ROW), steps=1, usage={"input_tokens": 3})
OVERLOADED = ProviderUnavailable("overloaded")
ASKED = rows(("user", "hi"), ("assistant", [text("Let me check."), tool_use("a"), tool_use("b")]))
ANSWERED = [*ASKED, row(3, "user", [])]


def call(index: int, state: CallState, **changes: Any) -> Call:
    return replace(
        Call(
            run_id=RUN,
            assistant_seq=2,
            index=index,
            invocation_id=INVOCATION,
            call_id="ab"[index],
            name="lookup",
            idempotent=False,
            state=state,
            content=None,
            is_error=None,
            started_at=None,
            finished_at=None,
        ),
        **changes,
    )


def complete(said: str = "Done.") -> Settlement:
    return settling.completed(
        RUN_ROW,
        INVOCATION_ROW,
        TOTALS,
        text=said,
        model="claude-sonnet-4-5",
        finish_reason="end_turn",
        result_fields={},
        last_frame=7,
    )


def fail(stored: Sequence[Message], error: Any = OVERLOADED, unanswered: Sequence[Input] = ()) -> Settlement:
    return settling.failed(RUN_ROW, INVOCATION_ROW, TOTALS, stored, error, unanswered=unanswered, last_frame=5)


def cancel(stored: Sequence[Message]) -> Settlement:
    return settling.cancelled(RUN_ROW, INVOCATION_ROW, TOTALS, stored, last_frame=5)


def test_a_completed_invocation_tells_its_last_answer() -> None:
    settlement = complete()
    assert (settlement.event, settlement.error, settlement.last_frame) == (RunEvent.COMPLETE, None, 7)
    assert settlement.result == {
        "runId": RUN,
        "sessionId": "s-1",
        "invocationId": INVOCATION,
        "streamId": "st_1",
        "status": "completed",
        "text": "Done.",
        "steps": 1,
        "usage": {"input_tokens": 3},
        "cost": {"amount": 0.0, "currency": "USD", "unpriced": False},
        "model": "claude-sonnet-4-5",
        "finishReason": "end_turn",
    }


def test_a_failure_tells_what_the_invocation_had_said() -> None:
    settlement = fail(ANSWERED)
    assert settlement.event is RunEvent.FAIL
    assert settlement.error == {"code": "PROVIDER_ERROR", "message": "overloaded", "retryable": True}
    result = settlement.result
    assert (result["status"], result["text"], result["finishReason"]) == ("failed", "Let me check.", "error")
    assert (settlement.last_frame, "unanswered" in result) == (5, False)


def test_a_failure_lists_the_inputs_that_nobody_answers() -> None:
    blocks = [{"type": "image", "source": {}}, text("this one?")]
    settlement = fail(ANSWERED, unanswered=[steering("in_1", "wait"), steering("in_2", blocks)])
    assert settlement.result["unanswered"] == [{"id": "in_1", "text": "wait"}, {"id": "in_2", "text": "this one?"}]


def test_the_steps_cap_has_a_finish_reason_of_its_own() -> None:
    settlement = fail(rows(("user", "hi")), MaxSteps("Agent exceeded 1 tool round-trips"))
    assert settlement.result["finishReason"] == "max_steps"


def test_a_cancelled_invocation_keeps_what_it_has_said() -> None:
    settlement = cancel(ANSWERED)
    assert (settlement.event, settlement.error) == (RunEvent.CANCEL, None)
    result = settlement.result
    assert (result["status"], result["text"], result["finishReason"]) == ("cancelled", "Let me check.", "cancelled")
    assert result["cancelled"] is True


@pytest.mark.parametrize("settle", [fail, cancel])
def test_a_result_holds_no_text_of_earlier_invocations(settle: Any) -> None:
    earlier = row(2, "assistant", [text("Before.")], invocation_id=InvocationId("inv_0"))
    settlement = settle([*rows(("user", "hi")), earlier])
    assert (settlement.result["text"], settlement.result["model"]) == ("", None)


@pytest.mark.parametrize(
    ("reason", "told"),
    [
        (FinishReason.MAX_TOKENS, settling.CUT_BY_LIMIT),
        (FinishReason.REFUSAL, "the call did not run: the turn was cut off by its stop reason (refusal)"),
    ],
)
def test_calls_of_a_cut_turn_are_answered(reason: str, told: str) -> None:
    assert settling.cut_calls([tool_use("a")], reason) == [
        {"type": "tool_result", "tool_use_id": "a", "content": told, "is_error": True}
    ]


def test_open_calls_are_answered_by_what_the_ledger_says() -> None:
    finished = call(0, CallState.FINISHED, content="found", is_error=False)
    one, two = settling.open_calls(ASKED, [finished, call(1, CallState.STARTED)], not_started=CANCELLED)
    assert one == {"type": "tool_result", "tool_use_id": "a", "content": "found"}
    assert (two["content"], two["is_error"]) == (INTERRUPTED, True)
    planned = [call(0, CallState.PLANNED), call(1, CallState.PLANNED)]
    for words in (CANCELLED, settling.NOT_STARTED):
        results = settling.open_calls(ASKED, planned, not_started=words)
        assert [(block["content"], block["is_error"]) for block in results] == [(words, True)] * 2


@pytest.mark.parametrize("stored", [ANSWERED, rows(("user", "hi")), []])
def test_only_calls_of_the_last_turn_are_open(stored: list[Message]) -> None:
    assert settling.open_calls(stored, [], not_started=CANCELLED) == []


def test_without_a_ledger_the_calls_stay_open() -> None:
    assert settling.open_calls(ASKED, None, not_started=CANCELLED) == []


def test_an_ending_holds_the_text_of_all_steps_and_the_result_that_of_the_last() -> None:
    stored = [*ANSWERED, row(4, "assistant", [text("Done.")])]
    assert ending(INVOCATION_ROW, complete(), stored, appended=stored[-1:]).text == "Let me check.Done."


def test_an_ending_holds_no_text_of_earlier_invocations() -> None:
    earlier = row(2, "assistant", [text("Before.")], invocation_id=InvocationId("inv_0"))
    stored = [*rows(("user", "hi")), earlier, row(3, "user", "more"), row(4, "assistant", [text("Now.")])]
    made = ending(INVOCATION_ROW, complete(), stored, appended=stored[-1:])
    assert made.text == committed_text(stored, INVOCATION) == "Now."


@pytest.mark.parametrize("settlement", [complete(), fail(ASKED), cancel(ASKED)], ids=lambda item: item.event)
@pytest.mark.parametrize("count", [0, 1, 2])
def test_the_ending_that_is_made_from_the_rows_is_the_same(settlement: Settlement, count: int) -> None:
    """It tells of the rows that the settlement appended, be it none."""
    stored = [*rows(("user", "hi")), row(2, "assistant", [text("Done.")]), row(3, "user", "wait")]
    appended = stored[len(stored) - count :]
    made = ending(INVOCATION_ROW, settlement, stored, appended=appended)
    settled = claim(
        result=settlement.result,
        error=settlement.error,
        last_frame=settlement.last_frame,
        last_seq=3,
        closing_rows=count,
    ).invocation
    later = [*stored, row(4, "user", "again", invocation_id=InvocationId("inv_2"))]
    assert stored_ending(settled, later) == made
    assert stored_ending(settled, later).close() == made.close()
    told = [json.loads(data) for event, data in made.close().frames if event == FrameEvent.MESSAGE]
    assert told == [{"seq": row.seq, "role": row.role} for row in appended]


def test_an_ending_whose_frames_are_in_doubt_begins_anew_with_the_committed_text() -> None:
    stored = [*rows(("user", "hi")), row(2, "assistant", [text("Done.")])]
    made = ending(INVOCATION_ROW, complete(), stored, appended=stored[-1:])
    assert (made.close().base, made.close().base_frames) == (0, ())
    anew = made.close(base=1_000_000)
    assert anew.base == 1_000_000
    assert list(anew.base_frames) == [(FrameEvent.REWIND, b'{"toSeq":0,"length":0}'), (None, b"Done.")]


def test_the_last_frame_that_rows_account_for() -> None:
    answer = replace(row(2, "assistant", [text("Done.")]), last_frame=6)
    asked, answered = rows(("user", "hi")), [*rows(("user", "hi")), answer]
    assert kept_last(asked, INVOCATION, base=0, sent=0) == 0
    assert kept_last(answered, INVOCATION, base=0, sent=0) == 6
    assert kept_last(answered, INVOCATION, base=0, sent=9) == 9
    assert kept_last(answered, INVOCATION, base=1_000_000, sent=9) == 1_000_001
    assert kept_last(asked, INVOCATION, base=1_000_000, sent=9) == 1_000_000
