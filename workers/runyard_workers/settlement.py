"""How an invocation ends: its result, its error, and the rows that leave no tool call unanswered."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from runyard.db.claims import Claim
from runyard.db.records import Call, Invocation, Message
from runyard.db.turns import AssistantTurn, Held, Settlement
from runyard.errors import MaxSteps, RunyardError
from runyard.runs import CallState, FinishReason, RunEvent, RunStatus
from runyard_workers.closer import Ending
from runyard_workers.output import committed_text
from runyard_workers.progress import Progress
from runyard_workers.transcript import INTERRUPTED, Block, text_of, tool_result, tool_uses

NOT_RUN = "the call did not run: the turn was cut off by its stop reason ({reason})"
CUT_BY_LIMIT = "the output limit (max_tokens) cut the turn: the call did not run"
NOT_STARTED = "the call did not run: the run failed"


@dataclass(frozen=True, kw_only=True, slots=True)
class End:
    """What one transaction stores at the terminal boundary, and the stream's ending that follows from it."""

    settlement: Settlement
    turn: AssistantTurn | None
    results: tuple[int, list[Block]] | None
    ending: Ending


def completed(claim: Claim, progress: Progress, rows: Sequence[Message], turn: AssistantTurn) -> End:
    """The model stopped by itself, for whatever reason.

    An empty turn is not stored. Calls in a turn that does not ask for results (cut by a limit, refused) are answered
    in a user row, so that the transcript stays replayable.
    """
    stored = turn if turn.content else None
    last_seq = turn.seq if stored else rows[-1].seq
    results: tuple[int, list[Block]] | None = None
    if blocks := tool_uses(turn.content):
        reason = (
            CUT_BY_LIMIT if turn.stop_reason == FinishReason.MAX_TOKENS else NOT_RUN.format(reason=turn.stop_reason)
        )
        last_seq = turn.seq + 1
        results = (last_seq, [tool_result(block["id"], reason, is_error=True) for block in blocks])
    result = _result(
        claim,
        progress,
        status=RunStatus.COMPLETED,
        text=text_of(turn.content),
        model=turn.model,
        finish_reason=turn.stop_reason,
    )
    text = committed_text(rows, claim.invocation.id) + text_of(turn.content)
    return _end(
        claim,
        RunEvent.COMPLETE,
        result=result,
        error=None,
        last_frame=turn.last_frame,
        last_seq=last_seq,
        last_role="user" if results else ("assistant" if stored else rows[-1].role),
        text=text,
        turn=stored,
        results=results,
    )


def failed(
    claim: Claim,
    progress: Progress,
    rows: Sequence[Message],
    ledger: Sequence[Call] | None,
    error: RunyardError,
    *,
    last_frame: int,
) -> End:
    """An error ends the invocation. Text that is not in a row is withdrawn; open calls are answered.

    Without a ledger they stay open in the transcript; whoever builds the next request answers them.
    """
    last_seq, last_role = (rows[-1].seq, rows[-1].role) if rows else (claim.run.last_seq, "user")
    results: tuple[int, list[Block]] | None = None
    if ledger is not None and last_role == "assistant" and (blocks := tool_uses(rows[-1].content)):
        last_seq, last_role = last_seq + 1, "user"
        results = (last_seq, [_answer(block, call) for block, call in zip(blocks, ledger, strict=True)])
    answers = [row for row in rows if row.role == "assistant" and row.invocation_id == claim.invocation.id]
    result = _result(
        claim,
        progress,
        status=RunStatus.FAILED,
        text=text_of(answers[-1].content) if answers else "",
        model=answers[-1].model if answers else None,
        finish_reason=FinishReason.MAX_STEPS if isinstance(error, MaxSteps) else FinishReason.ERROR,
    )
    return _end(
        claim,
        RunEvent.FAIL,
        result=result,
        error={"code": error.code, "message": error.message, "retryable": error.retryable},
        last_frame=last_frame,
        last_seq=last_seq,
        last_role=last_role,
        text=committed_text(rows, claim.invocation.id),
        turn=None,
        results=results,
    )


def turn_row(held: Held, turn: AssistantTurn, *, at: int) -> Message:
    """The row that `append_turn` stored."""
    return Message(
        run_id=held.run_id,
        seq=turn.seq,
        invocation_id=held.invocation_id,
        role="assistant",
        content=turn.content,
        model=turn.model,
        usage=turn.usage,
        cost=turn.cost,
        stop_reason=turn.stop_reason,
        duration_ms=turn.duration_ms,
        first_frame=turn.first_frame,
        last_frame=turn.last_frame,
        created_at=at,
    )


def results_row(held: Held, seq: int, content: list[Block], *, at: int) -> Message:
    """The row that `append_results` stored."""
    return Message(
        run_id=held.run_id,
        seq=seq,
        invocation_id=held.invocation_id,
        role="user",
        content=content,
        created_at=at,
    )


def stored_ending(invocation: Invocation, rows: Sequence[Message]) -> Ending:
    """The ending of an invocation that is settled, from its rows."""
    assert invocation.result is not None
    assert invocation.last_frame is not None
    last_role = next(row.role for row in rows if row.seq == invocation.last_seq)
    return _ending(
        invocation,
        result=invocation.result,
        error=invocation.error,
        last_frame=invocation.last_frame,
        last_seq=invocation.last_seq or 0,
        last_role=last_role,
        text=committed_text(rows, invocation.id),
    )


def _answer(block: Block, call: Call) -> Block:
    match call.state:
        case CallState.FINISHED:
            return tool_result(block["id"], call.content or "", is_error=bool(call.is_error))
        case CallState.STARTED:
            return tool_result(block["id"], INTERRUPTED, is_error=True)
        case CallState.PLANNED:
            return tool_result(block["id"], NOT_STARTED, is_error=True)


def _result(
    claim: Claim, progress: Progress, *, status: RunStatus, text: str, model: str | None, finish_reason: str
) -> dict[str, Any]:
    """The Result of the HTTP API."""
    return {
        "runId": claim.run.id,
        "sessionId": claim.run.session_id,
        "invocationId": claim.invocation.id,
        "streamId": claim.invocation.stream_id,
        "status": status,
        "text": text,
        "steps": progress.steps,
        "usage": progress.usage.to_dict(),
        "cost": progress.cost.to_dict(),
        "model": model,
        "finishReason": finish_reason,
    }


def _end(
    claim: Claim,
    event: RunEvent,
    *,
    result: dict[str, Any],
    error: dict[str, Any] | None,
    last_frame: int,
    last_seq: int,
    last_role: str,
    text: str,
    turn: AssistantTurn | None,
    results: tuple[int, list[Block]] | None,
) -> End:
    settlement = Settlement(event=event, result=result, error=error, last_frame=last_frame, last_seq=last_seq)
    ending = _ending(
        claim.invocation,
        result=result,
        error=error,
        last_frame=last_frame,
        last_seq=last_seq,
        last_role=last_role,
        text=text,
    )
    return End(settlement=settlement, turn=turn, results=results, ending=ending)


def _ending(
    invocation: Invocation,
    *,
    result: dict[str, Any],
    error: dict[str, Any] | None,
    last_frame: int,
    last_seq: int,
    last_role: str,
    text: str,
) -> Ending:
    return Ending(
        run_id=invocation.run_id,
        invocation_id=invocation.id,
        stream_id=invocation.stream_id,
        request_id=invocation.request_id,
        result=result,
        error=error,
        last_frame=last_frame,
        last_seq=last_seq,
        last_role=last_role,
        text=text,
    )
