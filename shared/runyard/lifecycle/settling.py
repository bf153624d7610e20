"""Settlements: the result and the error of an invocation, and results for all its tool calls that have none."""

from collections.abc import Mapping, Sequence
from typing import Any

from runyard.blocks import INTERRUPTED, Block, text_of, tool_result, tool_uses
from runyard.db.boundaries import Settlement
from runyard.db.records import Call, Input, Invocation, Message, Run
from runyard.db.turns import Totals
from runyard.errors import MaxSteps, RunyardError
from runyard.lifecycle.endings import own_answers
from runyard.runs import CallState, FinishReason, RunEvent, RunStatus

NOT_RUN = "the call did not run: the turn was cut off by its stop reason ({reason})"
CUT_BY_LIMIT = "the output limit (max_tokens) cut the turn: the call did not run"
NOT_STARTED = "the call did not run: the run failed"


def completed(
    run: Run,
    invocation: Invocation,
    totals: Totals,
    *,
    text: str,
    model: str | None,
    finish_reason: str,
    result_fields: Mapping[str, Any],
    last_frame: int,
) -> Settlement:
    """The model ended its turn. `text`: its last answer. `result_fields`: further fields of the result."""
    result = _result(
        run, invocation, totals, status=RunStatus.COMPLETED, text=text, model=model, finish_reason=finish_reason
    )
    return Settlement(event=RunEvent.COMPLETE, result={**result, **result_fields}, error=None, last_frame=last_frame)


def failed(
    run: Run,
    invocation: Invocation,
    totals: Totals,
    rows: Sequence[Message],
    error: RunyardError,
    *,
    unanswered: Sequence[Input],
    last_frame: int,
) -> Settlement:
    """An error ended the invocation. Inputs left unanswered are folded first in the next turn."""
    result = _of_last_answer(
        run,
        invocation,
        totals,
        rows,
        status=RunStatus.FAILED,
        finish_reason=FinishReason.MAX_STEPS if isinstance(error, MaxSteps) else FinishReason.ERROR,
    )
    if unanswered:
        result["unanswered"] = [{"id": item.id, "text": text_of(item.content)} for item in unanswered]
    if errors := error.fields.get("errors"):
        result["errors"] = errors
    return Settlement(event=RunEvent.FAIL, result=result, error=error.stored(), last_frame=last_frame)


def cancelled(
    run: Run, invocation: Invocation, totals: Totals, rows: Sequence[Message], *, last_frame: int
) -> Settlement:
    """A person stopped it; what it said so far is kept."""
    result = _of_last_answer(
        run, invocation, totals, rows, status=RunStatus.CANCELLED, finish_reason=FinishReason.CANCELLED
    )
    result["cancelled"] = True
    return Settlement(event=RunEvent.CANCEL, result=result, error=None, last_frame=last_frame)


def cut_calls(blocks: Sequence[Block], stop_reason: str) -> list[Block]:
    """Results for the calls of a turn that was cut by a limit or refused, which therefore do not run."""
    reason = CUT_BY_LIMIT if stop_reason == FinishReason.MAX_TOKENS else NOT_RUN.format(reason=stop_reason)
    return [tool_result(block["id"], reason, is_error=True) for block in blocks]


def open_calls(rows: Sequence[Message], ledger: Sequence[Call] | None, *, not_started: str) -> list[Block]:
    """A result for each call of the last turn, which will not be continued. Finished calls keep their result.

    Without a ledger there are none: the calls are answered when the next request is built.
    """
    if ledger is None or not rows or rows[-1].role != "assistant":
        return []
    blocks = tool_uses(rows[-1].content)
    return [_answer(block, call, not_started) for block, call in zip(blocks, ledger, strict=True)]


def _answer(block: Block, call: Call, not_started: str) -> Block:
    match call.state:
        case CallState.FINISHED:
            return tool_result(block["id"], call.content or "", is_error=bool(call.is_error))
        case CallState.STARTED:
            return tool_result(block["id"], INTERRUPTED, is_error=True)
        case CallState.PLANNED:
            return tool_result(block["id"], not_started, is_error=True)


def _of_last_answer(
    run: Run, invocation: Invocation, totals: Totals, rows: Sequence[Message], *, status: RunStatus, finish_reason: str
) -> dict[str, Any]:
    answers = _last_turn(own_answers(rows, invocation.id))
    return _result(
        run,
        invocation,
        totals,
        status=status,
        text="".join(text_of(answer.content) for answer in answers),
        model=answers[-1].model if answers else None,
        finish_reason=finish_reason,
    )


def _last_turn(answers: Sequence[Message]) -> list[Message]:
    """The rows of the last answer: several consecutive ones if its provider paused it."""
    turn: list[Message] = []
    for answer in reversed(answers):
        if turn and answer.seq != turn[0].seq - 1:
            break
        turn.insert(0, answer)
    return turn


def _result(
    run: Run,
    invocation: Invocation,
    totals: Totals,
    *,
    status: RunStatus,
    text: str,
    model: str | None,
    finish_reason: str,
) -> dict[str, Any]:
    """The Result of the HTTP API."""
    return {
        "runId": run.id,
        "sessionId": run.session_id,
        "invocationId": invocation.id,
        "streamId": invocation.stream_id,
        "status": status,
        "text": text,
        "steps": totals.steps,
        "usage": totals.usage,
        "cost": totals.cost,
        "model": model,
        "finishReason": finish_reason,
    }
