"""The errors of the Messages API, as the errors that are stored on a run.

https://docs.claude.com/en/api/errors
"""

from http import HTTPStatus

from runyard.errors import ProviderError, ProviderUnavailable
from runyard.text import clean_text, truncate_bytes

_SAID_MAX_BYTES = 1000

_PASSING_TYPES = frozenset({"rate_limit_error", "timeout_error", "api_error", "overloaded_error"})
"""Types of errors that another attempt may not meet. An error event inside a 200 is known by its type alone."""

_PASSING_STATUSES = frozenset({HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.CONFLICT, HTTPStatus.TOO_MANY_REQUESTS})


def api_failure(
    *,
    status: int,
    error_type: str | None,
    said: str | None,
    model: str,
    is_passing: bool | None = None,
    retry_after_s: float | None = None,
) -> ProviderError:
    """The error for a failed call. `said` must hold no secret.

    `status` 200: an error event in a stream that had begun. `is_passing` None: the provider does not say whether
    another attempt may help. Fields: `status`, `type` and, if it asks for a wait, `retry_after_s`.
    """
    if is_passing is not None:
        passing = is_passing
    elif status == HTTPStatus.OK:
        passing = error_type in _PASSING_TYPES
    else:
        passing = status in _PASSING_STATUSES or status >= HTTPStatus.INTERNAL_SERVER_ERROR
    kind = ProviderUnavailable if passing else ProviderError
    wait = {} if retry_after_s is None else {"retry_after_s": retry_after_s}
    told_type = None if error_type is None else clean_text(error_type)
    return kind(_message(status, error_type, said, model), status=status, type=told_type, **wait)


def _message(status: int, error_type: str | None, said: str | None, model: str) -> str:
    # About a refused key the provider's own words are left out: they may quote a part of it.
    match status, error_type:
        case (HTTPStatus.UNAUTHORIZED, _) | (_, "authentication_error"):
            return "the provider refused the key: check ANTHROPIC_API_KEY"
        case (HTTPStatus.FORBIDDEN, _) | (_, "permission_error"):
            return f"the provider does not let this key use the model {model!r}: check ANTHROPIC_API_KEY"
        case (HTTPStatus.NOT_FOUND, _) | (_, "not_found_error"):
            return (
                f"the provider does not know the model {model!r}: check the agent's model, RUNYARD_MODEL "
                "and ANTHROPIC_BASE_URL"
            )
    return _reasoned(
        status, truncate_bytes(clean_text(said or error_type or "no reason given"), _SAID_MAX_BYTES), model
    )


def _reasoned(status: int, reason: str, model: str) -> str:
    match status:
        case HTTPStatus.OK:
            return f"the provider failed in the middle of its answer: {reason}"
        case HTTPStatus.BAD_REQUEST:
            settings = f"the agent's model (here {model!r}), max_tokens and provider_options, and RUNYARD_MODEL"
            return f"the provider refused the request: {reason} (check {settings})"
        case HTTPStatus.METHOD_NOT_ALLOWED:
            return f"the provider answered {status}: {reason} (check ANTHROPIC_BASE_URL)"
        case _:
            return f"the provider answered {status}: {reason}"


def cut_stream() -> ProviderUnavailable:
    """The connection ended before the turn did: what came is no answer."""
    return ProviderUnavailable("the provider's stream ended early", status=HTTPStatus.OK.value, type="cut_stream")


def no_stream(media_type: str) -> ProviderError:
    """A 200 that is a page or a whole message: what answered is not the Messages API, or cannot stream."""
    return ProviderError(
        f"the provider's answer is {media_type}, no stream of events: check ANTHROPIC_BASE_URL",
        status=HTTPStatus.OK.value,
        type="no_stream",
    )


def dead_connection(silence_s: float) -> ProviderUnavailable:
    """Nothing came for that long, not even a sign of life."""
    return ProviderUnavailable(
        f"the provider's connection was dead: nothing came for {silence_s:g} s", status=None, type="dead_connection"
    )


def malformed(what: str) -> ProviderUnavailable:
    """`what` names the wrong part, never its content."""
    return ProviderUnavailable(
        f"the provider's stream is malformed: {what}", status=HTTPStatus.OK.value, type="malformed_stream"
    )
