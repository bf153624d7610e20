"""Pylon's wire contract: `POST /api/fn/{name}` calls an agent or a function, `GET /api/fn-streams/{id}` resumes.

The same runs as by this API, in the bodies, frames and codes that Pylon's clients know: docs/pylon.md. Where an agent
and a function have one name, it is the agent's.
"""

from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from runyard.db import reads
from runyard.errors import (
    AgentMismatch,
    CallerError,
    Forbidden,
    FunctionNotFound,
    PayloadTooLarge,
    RateLimited,
    RunNotFound,
    RunyardError,
    StreamGone,
    StreamNotFound,
    Unauthenticated,
)
from runyard.frames import Frame, FrameEvent
from runyard.lifecycle.new_turn import Accepted, NewTurn
from runyard.names import FUNCTION_PREFIX
from runyard.service_keys import PREFIX
from runyard_gateway.accepting import accept
from runyard_gateway.answers import json_answer
from runyard_gateway.auth.acting import acting
from runyard_gateway.auth.authenticator import unauthenticated
from runyard_gateway.auth.principal import NOBODY, Identity, Principal
from runyard_gateway.bodies import NoJsonObject, as_object, read_raw
from runyard_gateway.directory import KnownAgent
from runyard_gateway.gateway import Gateway
from runyard_gateway.new_turns import agent_turn, function_turn
from runyard_gateway.open_streams import reader_behind, reader_of
from runyard_gateway.operations import ForeignOperation
from runyard_gateway.protocols.pylon_answers import STREAM_ID, PylonAnswer, PylonResumed, stream_headers
from runyard_gateway.protocols.pylon_frames import NO_USAGE, pylon_error
from runyard_gateway.requests import (
    CallFunction,
    StartRun,
    address_of,
    checked_body,
    cursor_of,
    wants,
)
from runyard_gateway.routes.functions import is_let_in
from runyard_gateway.sse import SSE_HEADERS, encode
from runyard_gateway.stopping import stop

__all__ = ["OPERATIONS", "STREAM_ID"]

FIELDS = ("input", "runId", "title")
"""The fields of a call on an agent, besides `cancel`; others are ignored."""


class CancelNeedsRun(CallerError):
    """A cancel that does not name its run. Only this contract names the run in the body."""

    code = "AGENT_CANCEL_NEEDS_RUN"


async def call(gateway: Gateway, request: Request, principal: Principal) -> ASGIApp:
    """Answered with the stream where the caller takes one and it streams, else with the value, once there is one."""
    name = request.path_params["name"]
    target = await _callable(gateway, name, principal)
    is_function = target.current.agent.startswith(FUNCTION_PREFIX)
    body = await _read(gateway, request)
    if not is_function and body.get("cancel") is True:
        await _take(gateway, request, principal)
        return await _cancelled(gateway, principal, name, body.get("runId"))
    if is_function:
        called = CallFunction(input=body)
        turn = function_turn(request, principal, target, called, acting(principal, None))
    else:
        turn = await _agent_turn(gateway, request, principal, target, body)
    may_stream = wants(request) == "stream"
    reader = reader_of(turn.tenant_id, turn.user_id, request)
    with gateway.open_streams.place(reader) if may_stream else nullcontext():
        await _take(gateway, request, principal)
        accepted = await accept(gateway, turn)
    if accepted.is_steering:
        return _queued(request, accepted)
    answer = PylonAnswer(
        gateway=gateway, accepted=accepted, principal=principal, is_function=is_function, may_stream=may_stream
    )
    return gateway.open_streams.counted(reader, answer) if may_stream else answer


async def resume(gateway: Gateway, request: Request, principal: Principal) -> ASGIApp:
    """A stream from the reader's cursor on, by default from the beginning. Whether the caller may read is checked
    before what is kept.
    """
    for scope in (principal.scope, NOBODY.scope):
        found = await gateway.database.read(reads.invocation_of_stream, request.path_params["id"], scope)
        if found is not None:
            invocation, run = found
            reader = reader_behind(principal, request, owner=(run.tenant_id, run.user_id))
            gateway.open_streams.check(reader)
            answer = PylonResumed(
                gateway=gateway,
                invocation=invocation,
                credential=principal.credential,
                cursor=cursor_of(request) or 0,
                is_function=run.agent.startswith(FUNCTION_PREFIX),
            )
            return gateway.open_streams.counted(reader, answer)
    raise StreamNotFound("Unknown or expired stream id")


def tell(failure: RunyardError, request: Request) -> tuple[int, dict[str, Any]]:
    """`{"error": {"code", "message"}}`. Refusals that come after the access checks have status 400, like those of a
    handler.
    """
    status, error = failure.status, pylon_error(failure)
    match failure:
        case FunctionNotFound():
            error["code"] = "FN_NOT_FOUND"
        case Unauthenticated():
            error["code"] = _bearer_code(failure, request)
        case RateLimited():
            error["retry_after_secs"] = -(-failure.fields["retryAfterMs"] // 1000)
        case StreamGone():
            error["message"] = "cursor fell below the stream's retention window"
        case StreamNotFound() | Forbidden() | PayloadTooLarge():
            pass
        case CallerError():
            status = 400
    return status, {"error": error}


def _bearer_code(failure: Unauthenticated, request: Request) -> str:
    if failure.fields["reason"] == "missing":
        return "AUTH_REQUIRED"
    shown = request.headers.get("authorization", "").partition(" ")[2].strip()
    return "INVALID_API_KEY" if shown.startswith(PREFIX) else "INVALID_JWT"


async def _callable(gateway: Gateway, name: str, principal: Principal) -> KnownAgent:
    """What is named, if the caller may call it.

    Raises:
        FunctionNotFound: neither an agent nor a function, or an internal one.
        Unauthenticated: it is for users, and the caller shows nothing.
        Forbidden: it is for admins.
    """
    target = await gateway.directory.get(name) or await gateway.directory.function(name)
    if target is None or not is_let_in(target, principal):
        raise FunctionNotFound(f'Function "{name}" not found')
    if target.spec["auth"] == "user" and principal.is_nobody:
        raise unauthenticated()
    if isinstance(principal.caller, Identity) and not target.is_for(principal.caller):
        raise Forbidden("This is for admins")
    return target


async def _read(gateway: Gateway, request: Request) -> dict[str, Any]:
    """The body; what is no JSON object is `{}`. Raises `PayloadTooLarge`, `InvalidArgs`: what no store would hold."""
    raw = await read_raw(request, limit_bytes=gateway.settings.body_max_bytes)
    try:
        return as_object(raw)
    except NoJsonObject:
        return {}


async def _take(gateway: Gateway, request: Request, principal: Principal) -> None:
    """Count the call, a service's by the service."""
    match principal.caller:
        case Identity(tenant_id=tenant_id, user_id=user_id):
            await gateway.rates.take(tenant_id, user_id, address=address_of(request))
        case service:
            await gateway.rates.take(service.tenants[0], service.name, address=address_of(request))


async def _agent_turn(
    gateway: Gateway, request: Request, principal: Principal, agent: KnownAgent, body: dict[str, Any]
) -> NewTurn:
    given = {name: body[name] for name in FIELDS if body.get(name) is not None}
    checked = checked_body(given, StartRun)
    continues = None
    if checked.run_id is not None and principal.is_service:
        found = await gateway.database.read(reads.run_of, checked.run_id, principal.scope)
        if found is None:
            raise RunNotFound("Run not found")
        continues = found[0]
    identity = acting(principal, None, continues=continues)
    turn = agent_turn(gateway, request, principal, agent, checked, identity=identity, continues=checked.run_id)
    return replace(turn, title=checked.title)


async def _cancelled(gateway: Gateway, principal: Principal, agent: str, run_id: Any) -> Response:
    """Answered at once: what runs is asked to stop, and says itself when it has."""
    if not isinstance(run_id, str) or not run_id:
        raise CancelNeedsRun("cancel requires the runId of the run to stop")
    found = await gateway.database.read(reads.run_of, run_id, principal.scope)
    if found is None:
        raise RunNotFound("Run not found")
    if found[0].agent != agent:
        raise AgentMismatch(f"The run belongs to agent {found[0].agent}")
    await stop(gateway, run_id, principal.scope)
    return json_answer({**_nothing_yet(run_id), "cancelled": True})


def _queued(request: Request, accepted: Accepted) -> Response:
    """Input that steers what runs is answered at once; the running stream has what comes of it."""
    receipt = {"runId": accepted.run_id, "queued": accepted.queued}
    value = {**_nothing_yet(accepted.run_id), "queued": True}
    if wants(request) != "stream":
        return json_answer(value)
    frames = (Frame(0, FrameEvent.QUEUED, orjson.dumps(receipt)), Frame(0, FrameEvent.RESULT, orjson.dumps(value)))
    headers = [*SSE_HEADERS, *stream_headers(accepted.stream_id)]
    answer = Response(b"".join(map(encode, frames)))
    answer.raw_headers = headers
    return answer


def _nothing_yet(run_id: str) -> dict[str, Any]:
    return {"runId": run_id, "text": "", "steps": 0, "usage": NO_USAGE}


OPERATIONS = (
    ForeignOperation(method="POST", path="/api/fn/{name}", handler=call, tell=tell),
    ForeignOperation(method="GET", path="/api/fn-streams/{id}", handler=resume, tell=tell),
    ForeignOperation(method="GET", path="/api/fn-streams/{id}/", handler=resume, tell=tell),
)
