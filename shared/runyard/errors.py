"""The tree of errors. A class declares its code, HTTP status and whether a retry may help; an instance carries fields.

    RunyardError
    |- CallerError            the call was wrong: 4xx, nothing was stored
    |- Unavailable            503: a part is away, the same call may succeed later
    `- RunError               stored on the run and sent as its `error` frame
    Signal                    not an error: control flow of a worker, logged at info
    |- GenerationLost         the run belongs to another worker now
    |- HandOver               the worker leaves, and another one goes on with the run
    `- WorkerGone             this process lost its row and must drop its runs
    StartError                a process cannot start; one line that says what to do

An exception of a third party is translated once, in the adapter that meets it, `from` its cause.
"""

from collections.abc import Mapping
from typing import Any


class RunyardError(Exception):
    code = "INTERNAL"
    status = 500
    retryable = False
    request_id: str | None = None
    """The id under which the gateway's log has the request, where a gateway reported the error to a client."""

    def __init__(self, message: str, **fields: Any) -> None:
        super().__init__(message)
        self.message = message
        self.fields = fields

    def stored(self) -> dict[str, Any]:
        """What a failed run stores of it."""
        return {"code": self.code, "message": self.message, "retryable": self.retryable}

    def body(self, request_id: str | None = None) -> dict[str, Any]:
        """The body of an error, the same in an HTTP answer and in an `error` frame.

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
    """An unforeseen exception in our own code. The log has it under the request's id; the caller gets only a code."""


# The call was wrong ------------------------------------------------------------------------------------------------


class CallerError(RunyardError):
    status = 400


class InvalidArgs(CallerError):
    code = "INVALID_ARGS"


class InputRequired(CallerError):
    code = "AGENT_INPUT_REQUIRED"


class Unauthenticated(CallerError):
    """The caller's credential is missing, wrong or expired. Fields: `reason`: "missing", "invalid" or "expired"."""

    code = "UNAUTHENTICATED"
    status = 401


class Forbidden(CallerError):
    code = "FORBIDDEN"
    status = 403


class AgentRequiresUser(CallerError):
    """A service made a call without saying for which user."""

    code = "AGENT_REQUIRES_USER"
    status = 403


class AgentRunForbidden(CallerError):
    """The call is for a user or a tenant that the caller may not act for."""

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
    """There is no such function, or it is internal or not for this caller: all get the same answer."""

    code = "FUNCTION_NOT_FOUND"
    status = 404


class RunNotFound(CallerError):
    """There is no such run, or it is not the caller's: both get the same answer."""

    code = "RUN_NOT_FOUND"
    status = 404


class StreamNotFound(CallerError):
    """The stream is unknown, expired or somebody else's: all get the same answer."""

    code = "STREAM_NOT_FOUND"
    status = 404


class RoomNotFound(CallerError):
    """There is no such room, or the caller may not join it: both get the same answer."""

    code = "ROOM_NOT_FOUND"
    status = 404


class MethodNotAllowed(CallerError):
    code = "METHOD_NOT_ALLOWED"
    status = 405


class RequestTimeout(CallerError):
    """The request did not arrive completely in time; nothing was done."""

    code = "REQUEST_TIMEOUT"
    status = 408
    retryable = True


class AgentMismatch(CallerError):
    code = "AGENT_MISMATCH"
    status = 409


class AlreadyFolded(CallerError):
    """The input can no longer be taken back. Fields: `inputId`, and `seq`, the transcript row that holds it."""

    code = "ALREADY_FOLDED"
    status = 409


class InputQueueFull(CallerError):
    code = "AGENT_INPUT_QUEUE_FULL"
    status = 429
    retryable = True


class IdempotencyMismatch(CallerError):
    """The key was used before, for a call that said something else."""

    code = "IDEMPOTENCY_MISMATCH"
    status = 409


class RateLimited(CallerError):
    """Too many calls. Fields: `retryAfterMs`; the `Retry-After` header has it in seconds."""

    code = "RATE_LIMITED"
    status = 429
    retryable = True


class RunBusy(CallerError):
    code = "RUN_BUSY"
    status = 409
    retryable = True


class StreamGone(CallerError):
    """The frames after the cursor are no longer kept. Fields: `oldestSeq`, the oldest frame that is."""

    code = "STREAM_GONE"
    status = 410


class FeedGone(CallerError):
    """The feed no longer goes back to the cursor, or never gave it out: read the lists again."""

    code = "FEED_GONE"
    status = 410


class PayloadTooLarge(CallerError):
    code = "PAYLOAD_TOO_LARGE"
    status = 413


class UnsupportedMediaType(CallerError):
    """The request says that its body is something other than JSON, or compressed."""

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
    """A commit was sent and no answer came: it may or may not have happened. Read the rows again to find out."""


class StreamOverloaded(Unavailable):
    """The user has as many streams open at this gateway as is allowed. Fields: `limit`."""

    code = "STREAM_OVERLOADED"


class NotReady(Unavailable):
    code = "NOT_READY"


# What ends a run ---------------------------------------------------------------------------------------------------


class RunError(RunyardError):
    """Stored on the run, as `{code, message}`: the invocation fails with it."""


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

    Fields: `attempts`, how many there were, and `errors`, one for each in order: `{"model", "code", "message"}` and, if
    a provider answered, its `status` and `type`.
    """

    code = "FALLBACK_EXHAUSTED"
    status = 502


class FallbacksUnavailable(FallbackExhausted):
    """Every model failed, at least one of them in a way that may pass."""

    retryable = True


class ModelNotConfigured(RunError):
    """No model, or no key for it. The message names the setting."""

    code = "MODEL_NOT_CONFIGURED"
    status = 503


class RunTimeout(RunError):
    """Nothing happened for the agent's `timeout_s`: no event from the model, no running tool."""

    code = "RUN_TIMEOUT"
    status = 504


class RunCrashed(RunError):
    """Too many workers died with the invocation."""

    code = "RUN_CRASHED"


class FunctionFailed(RunError):
    """A function raised an exception that is not a `Refused`, or returned a value without a JSON form or too large."""

    code = "FUNCTION_FAILED"


class FunctionEnded(RunError):
    """A function's call ended without a value: it refused (`Refused`), or failed with one of the errors here.

    The ledger keeps it with status and fields, as the caller is told, so that whichever worker goes on tells the same.
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
    """A write was refused: the run's generation is no longer the one that this worker claimed."""


class HandOver(Signal):
    """The worker leaves and the run stands at a boundary: another worker goes on with it."""


class WorkerGone(Signal):
    """This process's row in `workers` is gone: the others think it dead, and its runs may already belong to them."""


class StartError(Exception):
    """A process cannot start. The message is one line that says what to do."""
