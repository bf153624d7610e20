"""Calls on a run: `POST /v1/agents/{agent}/runs` starts one, the others tell what became of it."""

from dataclasses import replace

from starlette.requests import Request
from starlette.types import ASGIApp

from runyard.db import reads
from runyard.errors import InvalidArgs, RunNotFound
from runyard_gateway import paging, shapes, waiting
from runyard_gateway.answers import Answer, json_answer
from runyard_gateway.auth.acting import acting
from runyard_gateway.auth.principal import Principal
from runyard_gateway.calls import CALL_ANSWERS, CALL_ERRORS, CALL_PARAMETERS, UNKNOWN_INVOCATION, answer_call
from runyard_gateway.gateway import Gateway
from runyard_gateway.new_turns import agent_turn
from runyard_gateway.operations import Operation
from runyard_gateway.parameters import CURSOR, PREFER
from runyard_gateway.requests import StartRun, read_body, wait_s
from runyard_gateway.routes.agents import callable_agent
from runyard_gateway.routes.runs import LIMIT, run_not_found
from runyard_gateway.views import invocation_view, step_records


async def start_run(gateway: Gateway, request: Request, principal: Principal) -> ASGIApp:
    """Start a run, or continue or steer the one that is named."""
    agent = await callable_agent(gateway, request.path_params["agent"], principal)
    body = await read_body(request, StartRun, limit_bytes=gateway.settings.body_max_bytes)
    if body.run_id is not None and body.session_id is not None:
        raise InvalidArgs("runId and sessionId both name a run: give one", fields=["runId", "sessionId"])
    identity = acting(principal, body.act_as)
    turn = replace(
        agent_turn(gateway, request, principal, agent, body, identity=identity, continues=body.run_id),
        session_id=body.session_id,
        title=body.title,
        metadata=body.metadata,
    )
    return await answer_call(gateway, request, principal, turn)


async def get_invocation(gateway: Gateway, request: Request, principal: Principal) -> ASGIApp:
    """Get an invocation, step by step. With `Prefer: wait=N` the answer waits for its end; without one
    in time it is 202.
    """
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
        before=paging.time_position(listing, CURSOR.read(request)),
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
