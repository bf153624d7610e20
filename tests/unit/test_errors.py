"""The tree of errors: one code a class, one status a code, and signals that are no errors."""

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from runyard import errors
from runyard.errors import CallerError, RunError, RunyardError, Signal, StartError, Unavailable

STATUSES = {
    "INTERNAL": 500,
    "INVALID_ARGS": 400,
    "AGENT_INPUT_REQUIRED": 400,
    "UNAUTHENTICATED": 401,
    "FORBIDDEN": 403,
    "AGENT_REQUIRES_USER": 403,
    "AGENT_RUN_FORBIDDEN": 403,
    "MODEL_NOT_ALLOWED": 403,
    "NOT_FOUND": 404,
    "AGENT_NOT_FOUND": 404,
    "FUNCTION_NOT_FOUND": 404,
    "RUN_NOT_FOUND": 404,
    "STREAM_NOT_FOUND": 404,
    "METHOD_NOT_ALLOWED": 405,
    "REQUEST_TIMEOUT": 408,
    "AGENT_MISMATCH": 409,
    "ALREADY_FOLDED": 409,
    "IDEMPOTENCY_MISMATCH": 409,
    "RATE_LIMITED": 429,
    "AGENT_INPUT_QUEUE_FULL": 429,
    "RUN_BUSY": 409,
    "STREAM_GONE": 410,
    "FEED_GONE": 410,
    "ROOM_NOT_FOUND": 404,
    "PAYLOAD_TOO_LARGE": 413,
    "UNSUPPORTED_MEDIA_TYPE": 415,
    "STORE_UNAVAILABLE": 503,
    "STREAM_OVERLOADED": 503,
    "NOT_READY": 503,
    "AGENT_MAX_STEPS": 500,
    "PROVIDER_ERROR": 502,
    "FALLBACK_EXHAUSTED": 502,
    "MODEL_NOT_CONFIGURED": 503,
    "RUN_TIMEOUT": 504,
    "RUN_CRASHED": 500,
    "FUNCTION_FAILED": 500,
}
"""What callers rely on."""

RETRYABLE = {
    *("RATE_LIMITED", "AGENT_INPUT_QUEUE_FULL", "RUN_BUSY", "REQUEST_TIMEOUT"),
    *("STORE_UNAVAILABLE", "STREAM_OVERLOADED", "NOT_READY"),
}


def tree(root: type[BaseException]) -> Iterator[type[BaseException]]:
    for child in root.__subclasses__():
        if child.__module__ == errors.__name__:
            yield child
            yield from tree(child)


CLASSES: list[type[RunyardError]] = [RunyardError, *tree(RunyardError)]  # type: ignore[list-item]
OWNERS = {cls.__dict__["code"]: cls for cls in CLASSES if "code" in cls.__dict__}


def test_no_two_classes_declare_one_code() -> None:
    declared = Counter(cls.__dict__["code"] for cls in CLASSES if "code" in cls.__dict__)
    assert {code for code, times in declared.items() if times > 1} == set()


def test_each_code_has_the_status_that_callers_rely_on() -> None:
    assert {code: cls.status for code, cls in OWNERS.items()} == STATUSES
    assert {code for code, cls in OWNERS.items() if cls.retryable} == RETRYABLE


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_a_branch_keeps_its_promise(cls: type[RunyardError]) -> None:
    """A class that narrows another one without a code of its own is answered with the same status."""
    assert cls.status == OWNERS[cls.code].status or cls in (CallerError, Unavailable)
    if issubclass(cls, CallerError):
        assert 400 <= cls.status < 500
    if issubclass(cls, Unavailable):
        assert (cls.status, cls.retryable) == (503, True)
    if issubclass(cls, RunError):
        assert cls.status >= 500


def test_one_body_says_it_everywhere() -> None:
    error = errors.StreamGone("The cursor is too old", oldestSeq=7)
    assert str(error) == "The cursor is too old"
    assert error.body("req_1") == {
        "error": {
            "code": "STREAM_GONE",
            "message": "The cursor is too old",
            "requestId": "req_1",
            "retryable": False,
            "oldestSeq": 7,
        }
    }
    assert error.body()["error"]["requestId"] is None


def test_signals_are_no_errors() -> None:
    """A handler of errors must not take control flow for a failure."""
    signals = {Signal, *tree(Signal)}
    assert {cls.__name__ for cls in signals} == {"Signal", "GenerationLost", "HandOver", "WorkerGone"}
    for cls in (*signals, StartError):
        assert not issubclass(cls, RunyardError)
        assert not hasattr(cls, "code")


def test_the_documented_codes_are_the_declared_ones() -> None:
    table = (Path(__file__).parents[2] / "docs/errors.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \| (\d+) \| (yes)? *\|", table, re.MULTILINE)
    assert {code: int(status) for code, status, _ in rows} == STATUSES
    assert {code for code, _, retryable in rows if retryable} == {code for code, cls in OWNERS.items() if cls.retryable}
