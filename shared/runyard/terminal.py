"""The terminal frame of an invocation, made from what its row stores.

The process that settles the invocation writes it. A gateway makes the same again for readers whose frames are gone.
"""

from typing import Any

from runyard.errors import error_body
from runyard.frames import FrameEvent, Payload, event_payload


def terminal_payload(*, result: dict[str, Any], error: dict[str, Any] | None, request_id: str) -> Payload:
    """`result` with the invocation's result, or `error` with the body that an HTTP answer would have.

    `error` as stored: `{"code": "PROVIDER_ERROR", "message": "...", "retryable": true}`; a function's also has the
    `status` and the `fields` that its caller is answered with.
    """
    if error is None:
        return event_payload(FrameEvent.RESULT, result)
    return event_payload(FrameEvent.ERROR, failure_body(result=result, error=error, request_id=request_id))


def failure_body(*, result: dict[str, Any], error: dict[str, Any], request_id: str) -> dict[str, Any]:
    """The error's body, with the fields of the result that a caller needs who gets only this frame."""
    names = ("runId", "invocationId", "streamId", "status", "steps", "usage", "cost", "errors", "unanswered")
    fields = error.get("fields", {}) | {name: result[name] for name in names if name in result}
    return error_body(
        code=error["code"],
        message=error["message"],
        request_id=request_id,
        retryable=error["retryable"],
        fields=fields,
    )
