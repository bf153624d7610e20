"""Runs: list, read, create without a call, change, delete. Calls on them are in `invocations.py`."""

import math
import time
from functools import partial

import structlog
from starlette.requests import Request
from starlette.responses import Response

from runyard.clock import now_ms
from runyard.db import reads
from runyard.errors import (
    AgentNotFound,
    AgentRequiresUser,
    AgentRunForbidden,
    RunBusy,
    RunNotFound,
)
from runyard.ids import new_run_id
from runyard.lifecycle.creating import NewRun, create_idle_run
from runyard.lifecycle.editing import describe_run, erase_run
from runyard.runs import BUSY, RunStatus
from runyard_gateway import paging, shapes, waiting
from runyard_gateway.accepting import committed
from runyard_gateway.answers import LOCATION, RUN_ID, Answer, json_answer, nothing
from runyard_gateway.auth.acting import acting, check_may_run, only_tenant
from runyard_gateway.auth.principal import Principal, Service
from runyard_gateway.closing import forget_streams
from runyard_gateway.gateway import Gateway
from runyard_gateway.operations import Operation
from runyard_gateway.parameters import CURSOR, Choice, Flag, MetadataFilter, Text, WholeNumber
from runyard_gateway.requests import CreateRun, DescribeRun, checked_messages, read_body
from runyard_gateway.routes.agents import callable_agent
from runyard_gateway.stopping import stop
from runyard_gateway.views import run_view

LIMIT = WholeNumber(name="limit", description="Items a page.", default=20, low=1, high=100)
AGENT = Text(name="agent", description="Runs of this agent.")
STATUS = Choice(name="status", description="Runs with this status.", choices=tuple(RunStatus))
SESSION = Text(name="sessionId", description="Runs of this session.")
TENANT = Text(name="tenantId", description="Runs of this tenant. A service of several tenants has to name one.")
USER = Text(name="userId", description="Runs of this user.")
METADATA = MetadataFilter(
    description="Runs with this top-level value in their metadata: a string, number, true, false or null."
)
FORCE = Flag(name="force", description="First stop a run that is at work.")
FORCE_WAIT_S = 30
"""A tool that does not stop when told is abandoned after 10 s, and a dead worker's run is taken over after about 11."""

log = structlog.get_logger()


async def list_runs(gateway: Gateway, request: Request, principal: Principal) -> Response:
    """List runs, newest activity first. A run has to match every filter."""
    limit = LIMIT.read(request)
    where = reads.RunFilter(
        agent=AGENT.read(request),
        status=STATUS.read(request),
        session_id=SESSION.read(request),
        metadata=METADATA.read(request),
    )
    tenant_id, user_id = TENANT.read(request), USER.read(request)
    if tenant_id is None and isinstance(principal.caller, Service):
        tenant_id = only_tenant(principal.caller)
    scope = principal.scope.within(tenant_id=tenant_id, user_id=user_id)
    if scope is None:
        return json_answer({"items": [], "nextCursor": None})
    asked = [part for pair in sorted(where.metadata.items()) for part in pair]
    listing = ("runs", *scope.tenants, scope.user_id, where.agent, where.status, where.session_id, *asked)
    found = await gateway.database.read(
        reads.runs_of, scope, where, before=paging.time_position(listing, CURSOR.read(request)), limit=limit + 1
    )
    page = found[:limit]
    cursor = None
    if len(found) > limit:
        last = page[-1][0]
        cursor = paging.seal(listing, last.last_activity_at, last.id)
    return json_answer({"items": [run_view(run, stream_id=stream) for run, stream in page], "nextCursor": cursor})


async def get_run(gateway: Gateway, request: Request, principal: Principal) -> Response:
    """Get a run."""
    found = await gateway.database.read(reads.run_of, request.path_params["id"], principal.scope)
    if found is None:
        raise run_not_found(request)
    run, invocation, inputs = found
    stream_id = None if invocation is None else invocation.stream_id
    standing = None
    if run.status is RunStatus.QUEUED and stream_id is not None:
        standing = (await gateway.standings.of([stream_id])).get(stream_id)
    return json_answer(run_view(run, stream_id=stream_id, waiting=inputs, standing=standing))


async def create_run(gateway: Gateway, request: Request, principal: Principal) -> Response:
    """Create an idle run. It may begin with a history to continue from."""
    body = await read_body(request, CreateRun, limit_bytes=gateway.settings.body_max_bytes)
    agent = await callable_agent(gateway, body.agent, principal)
    identity = acting(principal, body.act_as)
    check_may_run(agent, identity)
    history = checked_messages(body.messages or (), principal)
    new = NewRun(
        run_id=new_run_id(),
        tenant_id=identity.tenant_id,
        user_id=identity.user_id,
        agent=agent.current.agent,
        queue=agent.spec["queue"],
        priority=agent.priority,
        session_id=body.session_id,
        title=body.title,
        metadata=body.metadata,
        context=body.context if principal.is_service else None,
        history=history,
        at=now_ms(),
    )
    create = partial(gateway.database.write, create_idle_run, new)
    run, created = await committed(create, again=create)
    headers = {"Location": f"/v1/runs/{run.id}", "X-Run-Id": run.id}
    stream_id = None
    if not created:
        found = await gateway.database.read(reads.run_of, run.id, principal.scope)
        stream_id = found[1].stream_id if found is not None and found[1] is not None else None
    return json_answer(run_view(run, stream_id=stream_id), status=201 if created else 200, headers=headers)


async def describe(gateway: Gateway, request: Request, principal: Principal) -> Response:
    """Change title and metadata, also while the run is at work."""
    body = await read_body(request, DescribeRun, limit_bytes=gateway.settings.body_max_bytes)
    run_id = request.path_params["id"]
    await gateway.database.write(describe_run, run_id, principal.scope, values=body.values(), at=now_ms())
    return await get_run(gateway, request, principal)


async def delete(gateway: Gateway, request: Request, principal: Principal) -> Response:
    """Delete a run with everything that belongs to it. One at work is refused, or stopped first with `?force`."""
    run_id = request.path_params["id"]
    if FORCE.read(request):
        await _stopped(gateway, run_id, principal)
    streams = await gateway.database.write(erase_run, run_id, principal.scope, at=now_ms())
    log.info("run erased", run_id=run_id)
    await forget_streams(gateway, streams)
    return Response(status_code=204)


async def _stopped(gateway: Gateway, run_id: str, principal: Principal) -> None:
    """Stop the run, and the calls that wait to take its place. If it is still busy afterwards, erasing
    it reports that.
    """
    deadline = time.monotonic() + FORCE_WAIT_S
    while (left_s := deadline - time.monotonic()) > 0:
        done = await stop(gateway, run_id, principal.scope)
        if done.status not in BUSY:
            return
        found = await waiting.awaited(gateway, done.run.newest_invocation, principal, math.ceil(left_s))
        if found is None or found[0].settled_at is None:
            return  # its time is over, or the wait ended before: the caller's credential has, or the gateway leaves


def run_not_found(request: Request) -> RunNotFound:
    return RunNotFound("Run not found", runId=request.path_params["id"])


OPERATIONS = (
    Operation(
        method="GET",
        path="/v1/runs",
        handler=list_runs,
        parameters=(AGENT, STATUS, SESSION, TENANT, USER, METADATA, LIMIT, CURSOR),
        answers=(Answer(status=200, description="A page of them.", shape=shapes.Page[shapes.Run]),),
    ),
    Operation(
        method="POST",
        path="/v1/runs",
        handler=create_run,
        body=CreateRun,
        answers=(
            Answer(status=200, description="The session's run.", shape=shapes.Run, headers=(LOCATION, RUN_ID)),
            Answer(status=201, description="The new run.", shape=shapes.Run, headers=(LOCATION, RUN_ID)),
        ),
        errors=(AgentNotFound, AgentRequiresUser, AgentRunForbidden),
    ),
    Operation(
        method="GET",
        path="/v1/runs/{id}",
        handler=get_run,
        answers=(Answer(status=200, description="The run.", shape=shapes.Run),),
        errors=(RunNotFound,),
    ),
    Operation(
        method="PATCH",
        path="/v1/runs/{id}",
        handler=describe,
        body=DescribeRun,
        answers=(Answer(status=200, description="The run.", shape=shapes.Run),),
        errors=(RunNotFound,),
    ),
    Operation(
        method="DELETE",
        path="/v1/runs/{id}",
        handler=delete,
        parameters=(FORCE,),
        answers=(nothing("It is gone."),),
        errors=(RunNotFound, RunBusy),
    ),
)
