"""Runs: listed, read, created without a call, described, erased. What asks them to work is in `invocations.py`."""

import math
import time

import structlog
from starlette.requests import Request
from starlette.responses import Response

from runyard.clock import now_ms
from runyard.db import reads
from runyard.errors import InvalidArgs, RunNotFound
from runyard.ids import new_run_id
from runyard.lifecycle.editing import NewRun, create_idle_run, describe_run, erase_run
from runyard.runs import BUSY, RunStatus
from runyard_gateway import paging, waiting
from runyard_gateway.accepting import committed
from runyard_gateway.acting import acting, check_may_run, only_tenant
from runyard_gateway.answers import json_answer
from runyard_gateway.closing import forget_streams
from runyard_gateway.gateway import Gateway, Operation
from runyard_gateway.principal import Principal, Service
from runyard_gateway.requests import (
    CreateRun,
    DescribeRun,
    checked_messages,
    known_query,
    query_choice,
    query_flag,
    query_int,
    query_metadata,
    query_text,
    read_body,
)
from runyard_gateway.routes.agents import callable_agent
from runyard_gateway.stopping import stop
from runyard_gateway.views import run_view

RUNS_DEFAULT, RUNS_MAX = 20, 100
FORCE_WAIT_S = 30
"""A tool that does not stop when it is told is abandoned after 10 s, and a dead worker's run is taken over in 11."""

log = structlog.get_logger()


async def list_runs(gateway: Gateway, request: Request, principal: Principal) -> Response:
    """Newest activity first; those that match every filter: `agent`, `status`, `sessionId`, `tenantId`, `userId`, and
    `metadata.<key>`, which a top-level text, number, true, false or null equals.

    A service of several tenants has to name one.
    """
    known_query(request, "agent", "status", "sessionId", "tenantId", "userId", "limit", "cursor", metadata=True)
    limit = query_int(request, "limit", default=RUNS_DEFAULT, low=1, high=RUNS_MAX)
    where = reads.RunFilter(
        agent=query_text(request, "agent"),
        status=query_choice(request, "status", default=None, choices=tuple(RunStatus)),
        session_id=query_text(request, "sessionId"),
        metadata=query_metadata(request),
    )
    tenant_id, user_id = query_text(request, "tenantId"), query_text(request, "userId")
    if tenant_id is None and isinstance(principal.caller, Service):
        tenant_id = only_tenant(principal.caller)
    scope = principal.scope.within(tenant_id=tenant_id, user_id=user_id)
    if scope is None:
        return json_answer({"items": [], "nextCursor": None})
    asked = [part for pair in sorted(where.metadata.items()) for part in pair]
    listing = ("runs", *scope.tenants, scope.user_id, where.agent, where.status, where.session_id, *asked)
    found = await gateway.database.read(
        reads.runs_of, scope, where, before=time_position(listing, request), limit=limit + 1
    )
    page = found[:limit]
    cursor = None
    if len(found) > limit:
        last = page[-1][0]
        cursor = paging.seal(listing, last.last_activity_at, last.id)
    return json_answer({"items": [run_view(run, stream_id=stream) for run, stream in page], "nextCursor": cursor})


async def get_run(gateway: Gateway, request: Request, principal: Principal) -> Response:
    known_query(request)
    found = await gateway.database.read(reads.run_of, request.path_params["id"], principal.scope)
    if found is None:
        raise run_not_found(request)
    run, invocation, inputs = found
    stream_id = None if invocation is None else invocation.stream_id
    return json_answer(run_view(run, stream_id=stream_id, waiting=inputs))


async def create_run(gateway: Gateway, request: Request, principal: Principal) -> Response:
    """A run that nothing is asked of yet, with the history that it is to go on from. 200: its session has one."""
    known_query(request)
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
        session_id=body.session_id,
        title=body.title,
        metadata=body.metadata,
        context=body.context if principal.is_service else None,
        history=history,
        at=now_ms(),
    )
    run, created = await committed(gateway, create_idle_run, new)
    headers = {"Location": f"/v1/runs/{run.id}", "X-Run-Id": run.id}
    stream_id = None
    if not created:
        found = await gateway.database.read(reads.run_of, run.id, principal.scope)
        stream_id = found[1].stream_id if found is not None and found[1] is not None else None
    return json_answer(run_view(run, stream_id=stream_id), status=201 if created else 200, headers=headers)


async def describe(gateway: Gateway, request: Request, principal: Principal) -> Response:
    """Change title and metadata; whatever the run does meanwhile."""
    known_query(request)
    body = await read_body(request, DescribeRun, limit_bytes=gateway.settings.body_max_bytes)
    run_id = request.path_params["id"]
    await gateway.database.write(describe_run, run_id, principal.scope, values=body.values(), at=now_ms())
    return await get_run(gateway, request, principal)


async def delete(gateway: Gateway, request: Request, principal: Principal) -> Response:
    """Erase the run with all that belongs to it. One that is at work is refused, with `?force` stopped first."""
    known_query(request, "force")
    run_id = request.path_params["id"]
    if query_flag(request, "force"):
        await _stopped(gateway, run_id, principal)
    streams = await gateway.database.write(erase_run, run_id, principal.scope)
    log.info("run erased", run_id=run_id)
    await forget_streams(gateway, streams)
    return Response(status_code=204)


async def _stopped(gateway: Gateway, run_id: str, principal: Principal) -> None:
    """Stop it, and what waits to take its place; whoever still finds it busy is told."""
    deadline = time.monotonic() + FORCE_WAIT_S
    while (left_s := deadline - time.monotonic()) > 0:
        done = await stop(gateway, run_id, principal.scope)
        if done.status not in BUSY:
            return
        await waiting.awaited(gateway, done.run.newest_invocation, principal, math.ceil(left_s))


def run_not_found(request: Request) -> RunNotFound:
    return RunNotFound("Run not found", runId=request.path_params["id"])


def time_position(listing: paging.Listing, request: Request) -> tuple[int, str] | None:
    """The place in a list ordered by time, then id."""
    cursor = request.query_params.get("cursor")
    if cursor is None:
        return None
    match paging.unseal(listing, cursor):
        case [int(at), str(row_id)]:
            return at, row_id
        case _:
            raise InvalidArgs("cursor is not one that this list gave", fields=["cursor"])


OPERATIONS = (
    Operation(method="GET", path="/v1/runs", handler=list_runs),
    Operation(method="POST", path="/v1/runs", handler=create_run),
    Operation(method="GET", path="/v1/runs/{id}", handler=get_run),
    Operation(method="PATCH", path="/v1/runs/{id}", handler=describe),
    Operation(method="DELETE", path="/v1/runs/{id}", handler=delete),
)
