"""Exceptions of a client: what a gateway answered, as the class of `runyard.errors` with that code; what kept it from
answering.

    RunyardError
    |- CallerError, RunError, ...    told by a gateway, or kept by a run: see runyard/errors.py
    |- Unavailable
    |  |- Unreachable                nobody answered for as long as the client tries
    |  `- StreamCut                  a stream opened with resume=False lost its connection
    |- StillRunning                  also a TimeoutError: the invocation has not ended in time
    `- UnexpectedAnswer              what answered is not a gateway, or one that this client cannot understand
"""

from collections.abc import Iterator, Mapping
from email.utils import parsedate_to_datetime
from time import time
from typing import Any

import httpx2
import orjson

from runyard.errors import CallerError, RunyardError, Unavailable

TRANSIENT = frozenset({408, 429, 502, 503, 504})
"""Statuses after which another try may help, whether a gateway or something in front of it answered."""

_OWN_FIELDS = frozenset({"code", "message", "requestId", "retryable"})


class Unreachable(Unavailable):
    """Nobody answered for as long as the client tried. Its cause is httpx2's exception."""

    code = "UNREACHABLE"


class StreamCut(Unavailable):
    """The connection is lost, and the stream was opened with `resume=False`.

    Fields: `streamId` and `cursor`, the number of the last frame: `client.resume_stream(stream_id, since=cursor)`.
    """

    code = "STREAM_CUT"


class StillRunning(RunyardError, TimeoutError):
    """The caller stopped waiting; the invocation goes on. Fields: `runId`, `invocationId`, `streamId`."""

    code = "STILL_RUNNING"
    status = 504


class UnexpectedAnswer(RunyardError):
    """Whatever answered is not a gateway, or one that this client cannot understand. `status` is the answer's."""

    code = "UNEXPECTED_ANSWER"
    status = 502


def failure_of(response: httpx2.Response) -> RunyardError:
    """The exception for an unsuccessful answer whose body was read."""
    try:
        body = orjson.loads(response.content)["error"]
        return failure_from_body(body, status=response.status_code)
    except (ValueError, TypeError, KeyError):
        failure = UnexpectedAnswer(f"the answer {response.status_code} is none of a Runyard gateway")
        failure.status = response.status_code
        failure.retryable = response.status_code in TRANSIENT
        return failure


def failure_from_body(body: Mapping[str, Any], *, status: int | None = None) -> RunyardError:
    """The exception for an error's body: `{"code", "message", "requestId", "retryable", ...fields}`.

    `status` None: the body comes from a stream or a run, and the status is the code's own.

    Raises:
        KeyError: it is not such a body.
    """
    code = body["code"]
    failure = _class_of(code, status)(str(body["message"]))
    failure.code = code
    failure.status = failure.status if status is None else status
    failure.retryable = bool(body.get("retryable", failure.retryable))
    failure.request_id = body.get("requestId")
    failure.fields = {name: value for name, value in body.items() if name not in _OWN_FIELDS}
    return failure


def may_pass(response: httpx2.Response, failure: RunyardError) -> bool:
    """Whether the same call may succeed later. An answer that names a run does not count: the call was accepted, and
    its function ended with that status.
    """
    if "x-run-id" in response.headers:
        return False
    return response.status_code in TRANSIENT and failure.retryable


def retry_after_s(response: httpx2.Response) -> float:
    """`Retry-After` (RFC 9110, section 10.2.3), seconds or a date; 0 without one."""
    given = response.headers.get("retry-after", "").strip()
    if given.isascii() and given.isdigit():
        return float(given)
    try:
        return max(0.0, parsedate_to_datetime(given).timestamp() - time())
    except (ValueError, OverflowError):
        return 0.0


def _class_of(code: str, status: int | None) -> type[RunyardError]:
    if (known := _CLASSES.get(code)) is not None:
        return known
    match status:
        case 503:
            return Unavailable
        case int() if 400 <= status < 500:  # noqa: PLR2004 - HTTP's errors of callers
            return CallerError
    return RunyardError


def _tree(root: type[RunyardError]) -> Iterator[type[RunyardError]]:
    yield root
    for child in root.__subclasses__():
        yield from _tree(child)


_CLASSES = {
    cls.code: cls
    for cls in _tree(RunyardError)
    if "code" in cls.__dict__ and cls.__module__ == RunyardError.__module__ and cls is not RunyardError
}
