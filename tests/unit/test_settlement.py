"""How an invocation ends: its result, and rows that leave no tool call unanswered (loop.md G6, G9)."""

from dataclasses import replace
from typing import Any

import pytest
from tests.fakes.rows import INVOCATION, RUN, claim, row, rows, text, tool_use

from runyard.db.records import Call, Message
from runyard.db.turns import AssistantTurn
from runyard.errors import MaxSteps, ProviderUnavailable
from runyard.ids import InvocationId
from runyard.runs import CallState, FinishReason, RunEvent
from runyard_workers.prices import Cost
from runyard_workers.progress import Progress
from runyard_workers.providers.model import Usage
from runyard_workers.settlement import CUT_BY_LIMIT, NOT_STARTED, End, completed, failed, stored_ending
from runyard_workers.transcript import INTERRUPTED

CLAIM = claim()
PROGRESS = Progress.stored(CLAIM.run, CLAIM.invocation).plus_step(Usage(input_tokens=3), Cost())
OVERLOADED = ProviderUnavailable("overloaded")
ASKED = rows(("user", "hi"), ("assistant", [text("Let me check."), tool_use("a"), tool_use("b")]))


def assistant_turn(*content: dict[str, Any], stop_reason: str = "end_turn", seq: int = 2) -> AssistantTurn:
    return AssistantTurn(
        seq=seq,
        content=list(content),
        model="claude-sonnet-4-5",
        usage={},
        cost={},
        stop_reason=stop_reason,
        duration_ms=1,
        first_frame=3,
        last_frame=7,
    )


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


def fail(stored: list[Message], ledger: list[Call] | None = None, error: Any = OVERLOADED) -> End:
    return failed(CLAIM, PROGRESS, stored, ledger, error, last_frame=5)


def test_a_last_turn_is_stored_and_told() -> None:
    end = completed(CLAIM, PROGRESS, rows(("user", "hi")), assistant_turn(text("Done.")))
    assert end.settlement.event is RunEvent.COMPLETE
    assert (end.settlement.last_seq, end.settlement.last_frame, end.results) == (2, 7, None)
    assert end.turn is not None
    assert end.settlement.result == {
        "runId": RUN,
        "sessionId": "s-1",
        "invocationId": INVOCATION,
        "streamId": "st_1",
        "status": "completed",
        "text": "Done.",
        "steps": 1,
        "usage": Usage(input_tokens=3).to_dict(),
        "cost": {"amount": 0.0, "currency": "USD", "unpriced": False},
        "model": "claude-sonnet-4-5",
        "finishReason": "end_turn",
    }
    assert (end.ending.last_role, end.ending.text) == ("assistant", "Done.")


def test_the_ending_holds_the_text_of_all_steps_and_the_result_that_of_the_last() -> None:
    end = completed(CLAIM, PROGRESS, ASKED, assistant_turn(text("Done."), seq=4))
    assert (end.ending.text, end.settlement.result["text"]) == ("Let me check.Done.", "Done.")


def test_the_ending_holds_no_text_of_earlier_invocations() -> None:
    earlier = row(2, "assistant", [text("Before.")], invocation_id=InvocationId("inv_0"))
    end = completed(CLAIM, PROGRESS, [*rows(("user", "hi")), earlier], assistant_turn(text("Now."), seq=4))
    assert end.ending.text == "Now."
    assert fail([*rows(("user", "hi")), earlier]).settlement.result["text"] == ""


def test_an_empty_turn_is_told_and_not_stored() -> None:
    end = completed(CLAIM, PROGRESS, rows(("user", "hi")), assistant_turn())
    assert (end.turn, end.settlement.last_seq, end.ending.last_role) == (None, 1, "user")


@pytest.mark.parametrize(
    ("reason", "told"),
    [
        (FinishReason.MAX_TOKENS, CUT_BY_LIMIT),
        (FinishReason.REFUSAL, "the call did not run: the turn was cut off by its stop reason (refusal)"),
    ],
)
def test_calls_of_a_cut_turn_are_answered(reason: str, told: str) -> None:
    end = completed(CLAIM, PROGRESS, rows(("user", "hi")), assistant_turn(tool_use("a"), stop_reason=reason))
    assert end.results == (
        3,
        [{"type": "tool_result", "tool_use_id": "a", "content": told, "is_error": True}],
    )
    assert (end.settlement.last_seq, end.ending.last_role) == (3, "user")


def test_a_failure_answers_open_calls_by_what_the_ledger_says() -> None:
    finished = call(0, CallState.FINISHED, content="found", is_error=False)
    end = fail(ASKED, [finished, call(1, CallState.STARTED)])
    assert end.results is not None
    seq, (one, two) = end.results
    assert seq == end.settlement.last_seq == 3
    assert one == {"type": "tool_result", "tool_use_id": "a", "content": "found"}
    assert (two["content"], two["is_error"]) == (INTERRUPTED, True)
    end = fail(ASKED, [call(0, CallState.PLANNED), call(1, CallState.PLANNED)])
    assert end.results is not None
    assert {block["content"] for block in end.results[1]} == {NOT_STARTED}


def test_a_failure_tells_what_the_invocation_had_said() -> None:
    end = fail([*ASKED, row(3, "user", [])])
    assert end.settlement.event is RunEvent.FAIL
    assert end.settlement.error == {"code": "PROVIDER_ERROR", "message": "overloaded", "retryable": True}
    assert (end.settlement.result["text"], end.settlement.result["finishReason"]) == ("Let me check.", "error")
    assert (end.turn, end.results, end.settlement.last_seq, end.settlement.last_frame) == (None, None, 3, 5)


def test_the_steps_cap_has_a_finish_reason_of_its_own() -> None:
    end = fail(rows(("user", "hi")), [], MaxSteps("Agent exceeded 1 tool round-trips"))
    assert end.settlement.result["finishReason"] == "max_steps"


def test_without_a_ledger_the_calls_stay_open() -> None:
    end = fail(ASKED, None)
    assert (end.results, end.settlement.last_seq, end.ending.last_role) == (None, 2, "assistant")


def test_without_rows_a_failure_still_has_an_end() -> None:
    end = fail([], None)
    assert (end.settlement.last_seq, end.ending.last_role, end.ending.text) == (1, "user", "")


@pytest.mark.parametrize("is_failure", [True, False])
def test_the_ending_that_is_made_from_the_rows_is_the_same(is_failure: bool) -> None:
    stored = rows(("user", "hi"))
    end = fail(stored) if is_failure else completed(CLAIM, PROGRESS, stored, assistant_turn(text("Done.")))
    if end.turn is not None:
        stored.append(row(2, "assistant", end.turn.content))
    settlement = end.settlement
    invocation = claim(
        result=settlement.result,
        error=settlement.error,
        last_frame=settlement.last_frame,
        last_seq=settlement.last_seq,
    ).invocation
    assert stored_ending(invocation, stored) == end.ending
    assert stored_ending(invocation, stored).close() == end.ending.close()
