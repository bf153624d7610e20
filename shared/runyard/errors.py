"""The tree of errors. A class declares its code, HTTP status and whether a retry may help; an instance carries fields.

    RunyardError
    |- CallerError            the call was wrong: 4xx, nothing was stored
    |- Unavailable            503: a part is away, the same call may succeed later
    `- RunError               stored on the run and sent as its `error` frame
    Signal                    not an error: control flow of a worker, logged at info
    |- GenerationLost         the run belongs to another worker now
    `- WorkerGone             this process lost its row and must drop its runs
    StartError                a process cannot start; one line that says what to do

A third party's exception is translated once, in the adapter that met it, `from` its cause.
"""

from collections.abc import Mapping
from typing import Any


class RunyardError(Exception):
    code = "INTERNAL"
    status = 500
    retryable = False
    request_id: str | None = None
    """Where a client was told of it: under which id the gateway's log has the request."""

    def __init__(self, message: str, **fields: Any) -> None:
        super().__init__(message)
        self.message = message
        self.fields = fields

    def stored(self) -> dict[str, Any]:
        """What a run that failed with it keeps."""
        return {"code": self.code, "message": self.message, "retryable": self.retryable}

    def body(self, request_id: str | None = None) -> dict[str, Any]:
        """The one body, in an HTTP answer and in an `error` frame alike.

        `{"error": {"code": "RUN_BUSY", "message": "...", "requestId": "req_...", "retryable": false, ...fields}}`
        """
        return error_body(
            code=self.code, message=self.message, request_id=request_id, retryable=self.retryable, fields=self.fields
        )


def error_body(
    *, code: str, message: str, request_id: str | None, retryable: bool, fields: dict[str, Any]
) -> dict[str, Any]:
    return {"error": {"code": code, "message": message, "requestId": request_id, "retryable": retryable, **fields}}


class InternalError(RunyardError):
    """An exception of our own code that nobody foresaw: the log has it under the request's id, the caller a code."""


# The call was wrong ------------------------------------------------------------------------------------------------


class CallerError(RunyardError):
    status = 400


class InvalidArgs(CallerError):
    code = "INVALID_ARGS"


class InputRequired(CallerError):
    code = "AGENT_INPUT_REQUIRED"


class Unauthenticated(CallerError):
    """Fields: `reason`: nothing was sent ("missing"), or it is not valid ("invalid"), or no longer ("expired")."""

    code = "UNAUTHENTICATED"
    status = 401


class Forbidden(CallerError):
    code = "FORBIDDEN"
    status = 403


class AgentRequiresUser(CallerError):
    """A service's call that does not say for which user it is."""

    code = "AGENT_REQUIRES_USER"
    status = 403


class AgentRunForbidden(CallerError):
    """The call is for another user or tenant than the caller may act for."""

    code = "AGENT_RUN_FORBIDDEN"
    status = 403


class ModelNotAllowed(CallerError):
    code = "MODEL_NOT_ALLOWED"
    status = 403


class RouteNotFound(CallerError):
    code = "NOT_FOUND"
    status = 404


class AgentNotFound(CallerError):
    code = "AGENT_NOT_FOUND"
    status = 404


class FunctionNotFound(CallerError):
    """Also: it is not for this caller, or internal. They are told apart by nothing."""

    code = "FUNCTION_NOT_FOUND"
    status = 404


class RunNotFound(CallerError):
    """Also: the run is not the caller's. The two are told apart by nothing."""

    code = "RUN_NOT_FOUND"
    status = 404


class StreamNotFound(CallerError):
    """Unknown, expired or foreign: one and the same answer."""

    code = "STREAM_NOT_FOUND"
    status = 404


class RoomNotFound(CallerError):
    """Or one that the caller may not join: the same answer."""

    code = "ROOM_NOT_FOUND"
    status = 404


class MethodNotAllowed(CallerError):
    code = "METHOD_NOT_ALLOWED"
    status = 405


class RequestTimeout(CallerError):
    """The request did not come to its end in time; nothing was done."""

    code = "REQUEST_TIMEOUT"
    status = 408
    retryable = True


class AgentMismatch(CallerError):
    code = "AGENT_MISMATCH"
    status = 409


class AlreadyFolded(CallerError):
    """The input can no longer be taken back. Fields: `inputId`, `seq` of the row that holds it."""

    code = "ALREADY_FOLDED"
    status = 409


class InputQueueFull(CallerError):
    code = "AGENT_INPUT_QUEUE_FULL"
    status = 429
    retryable = True


class IdempotencyMismatch(CallerError):
    """The key belongs to an earlier call that said something else."""

    code = "IDEMPOTENCY_MISMATCH"
    status = 409


class RateLimited(CallerError):
    """Fields: `retryAfterMs`, also in `Retry-After`, in seconds."""

    code = "RATE_LIMITED"
    status = 429
    retryable = True


class RunBusy(CallerError):
    code = "RUN_BUSY"
    status = 409
    retryable = True


class StreamGone(CallerError):
    """The cursor fell below what is kept. Fields: `oldestSeq`."""

    code = "STREAM_GONE"
    status = 410


class FeedGone(CallerError):
    """The feed no longer tells what was deleted since the cursor, or never gave it: read the lists again."""

    code = "FEED_GONE"
    status = 410


class PayloadTooLarge(CallerError):
    code = "PAYLOAD_TOO_LARGE"
    status = 413


class UnsupportedMediaType(CallerError):
    """The body is said to be something else than JSON."""

    code = "UNSUPPORTED_MEDIA_TYPE"
    status = 415


# A part is away ----------------------------------------------------------------------------------------------------


class Unavailable(RunyardError):
    status = 503
    retryable = True


class StoreUnavailable(Unavailable):
    """The database or Redis does not answer, or cannot be written."""

    code = "STORE_UNAVAILABLE"


class CommitUnknown(StoreUnavailable):
    """A commit was sent and no answer came: it may or may not have happened. Whoever wrote reads the rows again."""


class StreamOverloaded(Unavailable):
    """The reader has as many streams open at this gateway as they may. Fields: `limit`."""

    code = "STREAM_OVERLOADED"


class NotReady(Unavailable):
    code = "NOT_READY"


# What ends a run ---------------------------------------------------------------------------------------------------


class RunError(RunyardError):
    """Stored on the run as `{code, message}`; the invocation fails with it."""


class MaxSteps(RunError):
    code = "AGENT_MAX_STEPS"


class ProviderError(RunError):
    """The model's provider refused, failed, fell silent or cut its stream."""

    code = "PROVIDER_ERROR"
    status = 502


class ProviderUnavailable(ProviderError):
    """A failure that another attempt may not meet: overload, rate limit, a cut connection."""

    retryable = True


class FallbackExhausted(RunError):
    """Every model of the agent's chain failed.

    Fields: `attempts`, and `errors`, one an attempt in their order: `{"model", "code", "message"}` and, from a
    provider, its `status` and `type`.
    """

    code = "FALLBACK_EXHAUSTED"
    status = 502


class FallbacksUnavailable(FallbackExhausted):
    """At least one of the models failed in a way that may pass."""

    retryable = True


class ModelNotConfigured(RunError):
    """No model, or no key for it. The message names the setting."""

    code = "MODEL_NOT_CONFIGURED"
    status = 503


class RunTimeout(RunError):
    """Nothing came for the agent's `timeout_s`: no event from the model, no running tool."""

    code = "RUN_TIMEOUT"
    status = 504


class RunCrashed(RunError):
    """The invocation's workers died too often."""

    code = "RUN_CRASHED"


class FunctionFailed(RunError):
    """A function raised what it did not mean for its caller, or returned what has no JSON form or is too large."""

    code = "FUNCTION_FAILED"


class FunctionEnded(RunError):
    """How a function's call ended that gave nothing: its own refusal (`Refused`), or one of the errors here.

    Its ledger keeps it as its caller is told of it, with status and fields, so that whoever goes on tells the same.
    """

    def __init__(self, error: Mapping[str, Any]) -> None:
        """`{"code": "ORDER_UNKNOWN", "message": "...", "retryable": false, "status": 404, "fields": {"order": "A"}}`"""
        super().__init__(error["message"], **error["fields"])
        self.code = error["code"]
        self.status = error["status"]
        self.retryable = error["retryable"]

    def stored(self) -> dict[str, Any]:
        return {**super().stored(), "status": self.status, "fields": self.fields}


# Signals -----------------------------------------------------------------------------------------------------------


class Signal(Exception):
    """A worker's control flow."""


class GenerationLost(Signal):
    """A write was refused: the run's generation is not the one its worker claimed."""


class HandOver(Signal):
    """The worker leaves, and the run stands at a boundary: another worker goes on with it."""


class WorkerGone(Signal):
    """This process's row in `workers` is gone: others count it as dead, its runs belong to nobody or to them."""


class StartError(Exception):
    """A process cannot start. The message is one line that says what to do."""
