"""Calls on a run: `POST /v1/agents/{agent}/runs` starts one, the others tell what became of it."""

from collections.abc import Mapping
from dataclasses import replace

import structlog
from starlette.requests import Request
from starlette.types import ASGIApp

from runyard.clock import now_ms
from runyard.db import reads
from runyard.db.records import Invocation, Run
from runyard.errors import (
    AgentMismatch,
    AgentNotFound,
    AgentRequiresUser,
    AgentRunForbidden,
    IdempotencyMismatch,
    InputQueueFull,
    InputRequired,
    InvalidArgs,
    ModelNotAllowed,
    RateLimited,
    RunBusy,
    RunNotFound,
    StoreUnavailable,
    StreamGone,
    StreamOverloaded,
)
from runyard.ids import InvocationId, new_input_id, new_invocation_id, new_run_id, new_stream_id
from runyard.lifecycle.accept import Accepted, NewTurn
from runyard_gateway import paging, shapes, waiting
from runyard_gateway.accepting import accept
from runyard_gateway.answers import (
    EVENT_STREAM,
    LOCATION,
    REPLAYED,
    RUN_ID,
    STREAM_ID,
    Answer,
    json_answer,
    nothing,
)
from runyard_gateway.auth.acting import acting, check_may_run
from runyard_gateway.auth.principal import Identity, Principal
from runyard_gateway.directory import KnownAgent
from runyard_gateway.failures import request_id_of
from runyard_gateway.gateway import Gateway
from runyard_gateway.open_streams import reader_of
from runyard_gateway.operations import Operation
from runyard_gateway.parameters import CURSOR, IDEMPOTENCY_KEY, LAST_EVENT_ID, PREFER
from runyard_gateway.requests import (
    ContinueRun,
    StartRun,
    address_of,
    call_key,
    checked_messages,
    cursor_of,
    read_body,
    wait_s,
    wants,
)
from runyard_gateway.routes.agents import callable_agent
from runyard_gateway.routes.runs import LIMIT, run_not_found, time_position
from runyard_gateway.streaming import NewStream, ResumedStream
from runyard_gateway.views import accepted_view, invocation_view, step_records

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
    nothing("The stream of a call that was sent again, read to its end already.", headers=_CALL_HEADERS),
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
"""What `answer_call` takes, and what may become of it."""

log = structlog.get_logger()


async def start_run(gateway: Gateway, request: Request, principal: Principal) -> ASGIApp:
    """Start a run, or continue or steer the one that is named."""
    agent = await callable_agent(gateway, request.path_params["agent"], principal)
    body = await read_body(request, StartRun, limit_bytes=gateway.settings.body_max_bytes)
    if body.run_id is not None and body.session_id is not None:
        raise InvalidArgs("runId and sessionId both name a run: give one", fields=["runId", "sessionId"])
    identity = acting(principal, body.act_as)
    turn = replace(
        new_turn(gateway, request, principal, agent, body, identity=identity, continues=body.run_id),
        session_id=body.session_id,
        title=body.title,
        metadata=body.metadata,
    )
    return await answer_call(gateway, request, principal, turn)


async def answer_call(gateway: Gateway, request: Request, principal: Principal, turn: NewTurn) -> ASGIApp:
    """Accept a turn and answer with the stream, the result (`Prefer: wait=N`), or 202 with `Location`."""
    seconds, streams = wait_s(request), wants(request) == "stream"
    reader = reader_of(turn.tenant_id, turn.user_id, request)
    if streams:
        gateway.open_streams.check(reader)
    await gateway.rates.take(turn.tenant_id, turn.user_id, address=address_of(request))
    accepted = await accept(gateway, turn)
    headers = call_headers(accepted, location=f"/v1/invocations/{accepted.invocation_id}")
    receipt = {"runId": accepted.run_id, "queued": accepted.queued, "inputId": accepted.input_id}
    if streams:
        if accepted.repeated:
            again = await stream_again(gateway, request, principal, accepted.invocation_id, headers)
            return gateway.open_streams.counted(reader, again)
        new = NewStream(
            gateway=gateway,
            stream_id=accepted.stream_id,
            credential=principal.credential,
            request_id=turn.request_id,
            headers=headers,
            receipt=receipt if accepted.is_steering else None,
        )
        return gateway.open_streams.counted(reader, new)
    headers["X-Stream-Id"] = accepted.stream_id
    found = await awaited_call(gateway, accepted, principal, seconds)
    if found is not None and found[0].settled_at is not None:
        return json_answer(invocation_view(*found), headers=headers)
    view = still_open_view(accepted, found)
    return json_answer(view | receipt if accepted.is_steering else view, status=202, headers=headers)


def call_headers(accepted: Accepted, *, location: str) -> dict[str, str]:
    """Of the answer to an accepted call; `location`: where to look for what becomes of it."""
    headers = {"X-Run-Id": accepted.run_id, "Location": location}
    if accepted.repeated:
        headers["Idempotent-Replayed"] = "true"
    return headers


def still_open_view(accepted: Accepted, found: tuple[Invocation, Run] | None) -> shapes.Accepted:
    """An accepted call that has not ended by now, as far as is known."""
    return accepted_view(
        run_id=accepted.run_id,
        session_id=accepted.session_id,
        invocation_id=accepted.invocation_id,
        stream_id=accepted.stream_id,
        status=accepted.status if found is None else found[0].status,
    )


async def awaited_call(
    gateway: Gateway, accepted: Accepted, principal: Principal, seconds: int | None
) -> tuple[Invocation, Run] | None:
    """What has become of it after so many seconds, or before. None: nobody waits (`seconds` None), or the database has
    gone since it accepted the call, which must not be told as a refusal.
    """
    if seconds is None:
        return None
    try:
        return await waiting.awaited(gateway, accepted.invocation_id, principal, seconds)
    except StoreUnavailable as error:
        log.warning("accepted call not awaited", invocation_id=accepted.invocation_id, error=str(error))
        return None


async def stream_again(
    gateway: Gateway,
    request: Request,
    principal: Principal,
    invocation_id: InvocationId,
    headers: Mapping[str, str],
) -> ResumedStream:
    """The stream of a call that was accepted before, from its beginning or from the reader's cursor on."""
    found = await gateway.database.read(reads.invocation_of, invocation_id, principal.scope)
    if found is None:
        raise RunNotFound(UNKNOWN_INVOCATION, invocationId=invocation_id)
    invocation, _run = found
    return ResumedStream(
        gateway=gateway,
        invocation=invocation,
        credential=principal.credential,
        cursor=cursor_of(request),
        request_id=request_id_of(request),
        headers=headers,
    )


def new_turn(
    gateway: Gateway,
    request: Request,
    principal: Principal,
    agent: KnownAgent,
    body: ContinueRun,
    *,
    identity: Identity,
    continues: str | None,
) -> NewTurn:
    """Raises `Forbidden`, `ModelNotAllowed`, `InputRequired`, `InvalidArgs` for what may not be asked."""
    check_may_run(agent, identity)
    if_busy = body.if_busy or ("reject" if principal.is_service else "steer")
    context = body.context if principal.is_service else None
    if context is not None and if_busy == "steer":
        raise InvalidArgs("context is for a new turn: it cannot be sent with ifBusy steer", fields=["context"])
    allowed = {agent.spec["model"] or gateway.settings.model, *gateway.settings.models_allowed}
    if body.model is not None and body.model not in allowed:
        raise ModelNotAllowed(f"the model {body.model!r} is not allowed here", model=body.model)
    checked_messages(body.messages or (), principal)
    history, content = body.said()
    return NewTurn(
        tenant_id=identity.tenant_id,
        user_id=identity.user_id,
        scope=identity.scope,
        agent=agent.current.agent,
        queue=agent.spec["queue"],
        content=content,
        history=history,
        roles=tuple(sorted(identity.roles)),
        options=body.options(),
        run_id=new_run_id(),
        invocation_id=new_invocation_id(),
        input_id=new_input_id(),
        stream_id=new_stream_id(),
        request_id=request_id_of(request),
        at=now_ms(),
        continues=continues,
        if_busy=if_busy,
        context=context,
        call_key=call_key(request, body),
    )


async def get_invocation(gateway: Gateway, request: Request, principal: Principal) -> ASGIApp:
    """Get what became of an invocation, step by step. With `Prefer: wait=N` once it has ended, else 202."""
    invocation_id = request.path_params["id"]
    seconds = wait_s(request)
    status = 200
    found = await gateway.database.read(reads.invocation_of, invocation_id, principal.scope)
    if found is not None and seconds is not None and found[0].settled_at is None:
        found = await waiting.awaited(gateway, invocation_id, principal, seconds)
        status = 202 if found is not None and found[0].settled_at is None else 200
    if found is None:
        raise RunNotFound(UNKNOWN_INVOCATION, invocationId=invocation_id)
    steps = await gateway.database.read(reads.steps_of, found[0])
    return json_answer({**invocation_view(*found), "stepRecords": step_records(steps)}, status=status)


async def list_invocations(gateway: Gateway, request: Request, principal: Principal) -> ASGIApp:
    """List the invocations of a run, newest first."""
    limit = LIMIT.read(request)
    listing = ("invocations", request.path_params["id"])
    found = await gateway.database.read(
        reads.invocations_of,
        request.path_params["id"],
        principal.scope,
        before=time_position(listing, request),
        limit=limit + 1,
    )
    if found is None:
        raise run_not_found(request)
    run, invocations = found
    page = invocations[:limit]
    cursor = paging.seal(listing, page[-1].created_at, page[-1].id) if len(invocations) > limit else None
    return json_answer({"items": [invocation_view(item, run) for item in page], "nextCursor": cursor})


OPERATIONS = (
    Operation(
        method="POST",
        path="/v1/agents/{agent}/runs",
        handler=start_run,
        body=StartRun,
        parameters=CALL_PARAMETERS,
        answers=CALL_ANSWERS,
        errors=CALL_ERRORS,
    ),
    Operation(
        method="GET",
        path="/v1/invocations/{id}",
        handler=get_invocation,
        parameters=(PREFER,),
        answers=(
            Answer(status=200, description="How it ended, or how it stands.", shape=shapes.InvocationWithSteps),
            Answer(status=202, description="It has not ended in time.", shape=shapes.InvocationWithSteps),
        ),
        errors=(RunNotFound,),
    ),
    Operation(
        method="GET",
        path="/v1/runs/{id}/invocations",
        handler=list_invocations,
        parameters=(LIMIT, CURSOR),
        answers=(Answer(status=200, description="A page of them.", shape=shapes.Page[shapes.Invocation]),),
        errors=(RunNotFound,),
    ),
)
