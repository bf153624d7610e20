"""Rows as the API shows them: JSON in camelCase, times in UTC ISO 8601, content blocks verbatim."""

from collections.abc import Sequence
from typing import Any

from runyard.clock import to_iso
from runyard.db.records import Call, Input, Invocation, Message, Run
from runyard.lifecycle.creating import NO_USAGE
from runyard.runs import SETTLED, RunStatus
from runyard_gateway import shapes
from runyard_gateway.standings import Standing


def run_view(
    run: Run, *, stream_id: str | None, waiting: Sequence[Input] = (), standing: Standing | None = None
) -> shapes.Run:
    """`shapes.Run`. Fields of features that are not built yet have their default value."""
    return {
        "id": run.id,
        "tenantId": run.tenant_id,
        "userId": run.user_id,
        "agent": run.agent,
        "agentVersion": run.agent_version,
        "sessionId": run.session_id,
        "title": run.title,
        "metadata": run.metadata,
        "status": run.status,
        "priority": run.priority,
        "position": None if standing is None else standing.position,
        "waitReason": None if standing is None else standing.reason,
        "error": None if run.error is None else {"code": run.error["code"], "message": run.error["message"]},
        "streamId": stream_id,
        "invocationId": run.invocation_id,
        "pendingInput": [input_view(item) for item in waiting],
        "cancelRequested": run.cancel_requested,
        "context": run.context,
        "steps": run.steps,
        "messageCount": run.last_seq,
        "pendingCalls": [],
        "parentRunId": None,
        "usage": NO_USAGE | run.usage,
        "cost": _cost(run.cost),
        "createdAt": to_iso(run.created_at),
        "lastActivityAt": to_iso(run.last_activity_at),
    }


def input_view(item: Input) -> shapes.Input:
    return {"id": item.id, "text": _text(item.content), "at": to_iso(item.created_at)}


def message_view(message: Message) -> shapes.Message:
    """`content` is a string for plain user text, else blocks."""
    return {
        "runId": message.run_id,
        "seq": message.seq,
        "role": message.role,
        "content": message.content,
        "createdAt": to_iso(message.created_at),
        "invocationId": message.invocation_id,
        "model": message.model,
        "usage": message.usage,
        "stopReason": message.stop_reason,
    }


def result_view(invocation: Invocation, run: Run) -> dict[str, Any]:
    """`shapes.Result`, as the terminal frame has it, with the error of a failed one; before the end, what is known."""
    if invocation.status not in SETTLED:
        return {
            **accepted_view(
                run_id=run.id,
                session_id=run.session_id,
                invocation_id=invocation.id,
                stream_id=invocation.stream_id,
                status=invocation.status,
            ),
            "steps": invocation.steps,
            "usage": NO_USAGE | invocation.usage,
            "cost": invocation.cost,
        }
    assert invocation.result is not None, "a settled invocation has its result"
    if invocation.error is None:
        return invocation.result
    told = {name: invocation.error[name] for name in ("code", "message", "retryable")}
    return {**invocation.result, "error": told | invocation.error.get("fields", {})}


def accepted_view(
    *, run_id: str, session_id: str | None, invocation_id: str, stream_id: str, status: RunStatus
) -> shapes.Accepted:
    """The answer to an accepted call: where to find out what becomes of it."""
    return {
        "runId": run_id,
        "sessionId": session_id,
        "invocationId": invocation_id,
        "streamId": stream_id,
        "status": status,
    }


def invocation_view(invocation: Invocation, run: Run) -> dict[str, Any]:
    """`shapes.Invocation`, of what is stored as JSON."""
    return {
        **result_view(invocation, run),
        "createdAt": to_iso(invocation.created_at),
        "startedAt": invocation.started_at and to_iso(invocation.started_at),
        "settledAt": invocation.settled_at and to_iso(invocation.settled_at),
    }


def step_records(steps: Sequence[tuple[Message, Sequence[Call]]]) -> list[shapes.Step]:
    """One record for each model call: `{model, usage, calls, finishReason, durationMs}`."""
    return [
        {
            "seq": turn.seq,
            "model": turn.model,
            "usage": turn.usage,
            "calls": [_call_view(call) for call in calls],
            "finishReason": turn.stop_reason,
            "durationMs": turn.duration_ms,
        }
        for turn, calls in steps
    ]


def _call_view(call: Call) -> shapes.StepCall:
    duration_ms = None
    if call.started_at is not None and call.finished_at is not None:
        duration_ms = max(0, call.finished_at - call.started_at)  # by two clocks, or by one that was set back
    return {
        "id": call.call_id,
        "name": call.name,
        "state": call.state,
        "isError": call.is_error,
        "durationMs": duration_ms,
    }


def _text(content: str | list[dict[str, Any]]) -> str:
    if isinstance(content, str):
        return content
    return "\n\n".join(block["text"] for block in content if block["type"] == "text")


def _cost(cost: dict[str, Any]) -> shapes.Cost:
    return {"amount": cost["amount"], "currency": cost["currency"], "unpriced": cost["unpriced"]}
