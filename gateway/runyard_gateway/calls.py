"""The answer to a call on a run: its stream, its result, or 202 with where to look for it."""

from contextlib import nullcontext
from typing import Protocol

import structlog
from starlette.requests import Request
from starlette.types import ASGIApp

from runyard.db.records import Invocation, Run
from runyard.errors import (
    AgentMismatch,
    AgentNotFound,
    AgentRequiresUser,
    AgentRunForbidden,
    IdempotencyMismatch,
    InputQueueFull,
    InputRequired,
    ModelNotAllowed,
    RateLimited,
    RunBusy,
    RunNotFound,
    StoreUnavailable,
    StreamGone,
    StreamOverloaded,
)
from runyard.ids import RequestId
from runyard.lifecycle.new_turn import Accepted, NewTurn
from runyard_gateway import shapes, waiting
from runyard_gateway.accepting import accept
from runyard_gateway.answers import EVENT_STREAM, LOCATION, REPLAYED, RUN_ID, STREAM_ID, Answer, json_answer, nothing
from runyard_gateway.auth.principal import Principal
from runyard_gateway.gateway import Gateway
from runyard_gateway.open_streams import reader_of
from runyard_gateway.parameters import IDEMPOTENCY_KEY, LAST_EVENT_ID, PREFER
from runyard_gateway.requests import address_of, cursor_of, wait_s, wants
from runyard_gateway.streaming import NewStream, ResumedStream
from runyard_gateway.views import accepted_view, invocation_view

UNKNOWN_INVOCATION = "Invocation not found"

_CALL_HEADERS = (LOCATION, RUN_ID, STREAM_ID, REPLAYED)
CALL_PARAMETERS = (PREFER, IDEMPOTENCY_KEY, LAST_EVENT_ID)
CALL_ANSWERS = (
    Answer(
        status=200,
        description="With `Accept: text/event-stream` the stream.",
        media=EVENT_STREAM,
        headers=_CALL_HEADERS,
    ),
    Answer(status=200, description="With `Prefer: wait=N` the result.", shape=shapes.Invocation, headers=_CALL_HEADERS),
    Answer(status=202, description="The call is accepted.", shape=shapes.Accepted, headers=_CALL_HEADERS),
    nothing("The stream of a repeated call that was already read to its end.", headers=_CALL_HEADERS),
)
CALL_ERRORS = (
    AgentMismatch,
    AgentNotFound,
    AgentRequiresUser,
    AgentRunForbidden,
    IdempotencyMismatch,
    InputQueueFull,
    InputRequired,
    ModelNotAllowed,
    RateLimited,
    RunBusy,
    RunNotFound,
    StreamGone,
    StreamOverloaded,
)
"""Errors of `answer_call` and of making its turn."""

log = structlog.get_logger()


class StreamOf(Protocol):
    """Makes the stream that answers a call that was just accepted."""

    def __call__(
        self,
        *,
        gateway: Gateway,
        accepted: Accepted,
        principal: Principal,
        request_id: RequestId,
        headers: dict[str, str],
    ) -> ASGIApp: ...


class ResultOf(Protocol):
    """Makes the answer to a call that was waited for and has ended."""

    def __call__(
        self, invocation: Invocation, run: Run, *, request_id: RequestId, headers: dict[str, str]
    ) -> ASGIApp: ...


class AgainOf(Protocol):
    """Makes the answer to a repeated call. `stream`: that of the original call, from the caller's cursor on."""

    def __call__(self, stream: ResumedStream, accepted: Accepted, principal: Principal) -> ASGIApp: ...


def _run_stream(
    *, gateway: Gateway, accepted: Accepted, principal: Principal, request_id: RequestId, headers: dict[str, str]
) -> ASGIApp:
    return NewStream(
        gateway=gateway,
        stream_id=accepted.stream_id,
        credential=principal.credential,
        request_id=request_id,
        headers=headers,
        receipt=_receipt(accepted) if accepted.is_steering else None,
    )


def _run_result(invocation: Invocation, run: Run, *, request_id: RequestId, headers: dict[str, str]) -> ASGIApp:  # noqa: ARG001 - an error is a part of the result
    return json_answer(invocation_view(invocation, run), headers=headers)


def _run_again(stream: ResumedStream, accepted: Accepted, principal: Principal) -> ASGIApp:  # noqa: ARG001 - the stream has what it needs of them
    return stream


async def answer_call(
    gateway: Gateway,
    request: Request,
    principal: Principal,
    turn: NewTurn,
    *,
    stream_of: StreamOf = _run_stream,
    again_of: AgainOf = _run_again,
    result_of: ResultOf = _run_result,
) -> ASGIApp:
    """Accept a turn and answer with the stream, the result (`Prefer: wait=N`), or 202 with `Location`."""
    seconds, streams = wait_s(request), wants(request) == "stream"
    reader = reader_of(turn.tenant_id, turn.user_id, request)
    with gateway.open_streams.place(reader) if streams else nullcontext():
        await gateway.rates.take(turn.tenant_id, turn.user_id, address=address_of(request))
        accepted = await accept(gateway, turn)
    headers = _call_headers(accepted, principal)
    if streams:
        if accepted.repeated:
            stream = ResumedStream(
                gateway=gateway,
                stream_id=accepted.stream_id,
                credential=principal.credential,
                cursor=cursor_of(request),
                request_id=turn.request_id,
                headers=headers,
            )
            answer: ASGIApp = again_of(stream, accepted, principal)
        else:
            answer = stream_of(
                gateway=gateway, accepted=accepted, principal=principal, request_id=turn.request_id, headers=headers
            )
        return gateway.open_streams.counted(reader, answer)
    headers["X-Stream-Id"] = accepted.stream_id
    found = await awaited_call(gateway, accepted, principal, seconds)
    if found is not None and found[0].settled_at is not None:
        return result_of(*found, request_id=turn.request_id, headers=headers)
    view = accepted_view(
        run_id=accepted.run_id,
        session_id=accepted.session_id,
        invocation_id=accepted.invocation_id,
        stream_id=accepted.stream_id,
        status=accepted.status if found is None else found[0].status,
    )
    return json_answer(view | _receipt(accepted) if accepted.is_steering else view, status=202, headers=headers)


def _receipt(accepted: Accepted) -> dict[str, object]:
    return {"runId": accepted.run_id, "queued": accepted.queued, "inputId": accepted.input_id}


def _call_headers(accepted: Accepted, principal: Principal) -> dict[str, str]:
    # Who shows nothing can read the stream, by its id, and no row.
    place = f"streams/{accepted.stream_id}" if principal.is_nobody else f"invocations/{accepted.invocation_id}"
    headers = {"X-Run-Id": accepted.run_id, "Location": f"/v1/{place}"}
    if accepted.repeated:
        headers["Idempotent-Replayed"] = "true"
    return headers


async def awaited_call(
    gateway: Gateway, accepted: Accepted, principal: Principal, seconds: int | None
) -> tuple[Invocation, Run] | None:
    """What has become of an accepted call after so many seconds, or as soon as it has ended.

    None: nobody waits (`seconds` None), or the database went away after the call was accepted, which must not look like
    a refusal.
    """
    if seconds is None:
        return None
    try:
        return await waiting.awaited(gateway, accepted.invocation_id, principal, seconds)
    except StoreUnavailable as error:
        log.warning("accepted call not awaited", invocation_id=accepted.invocation_id, error=str(error))
        return None
