"""Streams, from any cursor: `GET /v1/streams/{id}`, `GET /v1/runs/{id}/stream` (the newest invocation's)."""

from starlette.requests import Request

from runyard.db import reads
from runyard.errors import StreamNotFound
from runyard_gateway.failures import request_id_of
from runyard_gateway.gateway import Gateway, Operation
from runyard_gateway.principal import Principal
from runyard_gateway.requests import cursor_of, known_query
from runyard_gateway.routes.runs import run_not_found
from runyard_gateway.streaming import ResumedStream


async def get_stream(gateway: Gateway, request: Request, principal: Principal) -> ResumedStream:
    known_query(request, "since")
    found = await gateway.database.read(reads.invocation_of_stream, request.path_params["id"], principal.scope)
    if found is None:
        raise StreamNotFound("Unknown or expired stream id")
    invocation, _run = found
    return ResumedStream(
        gateway=gateway,
        invocation=invocation,
        credential=principal.credential,
        cursor=cursor_of(request),
        request_id=request_id_of(request),
    )


async def get_run_stream(gateway: Gateway, request: Request, principal: Principal) -> ResumedStream:
    known_query(request, "since")
    found = await gateway.database.read(reads.run_of, request.path_params["id"], principal.scope)
    if found is None:
        raise run_not_found(request)
    _run, invocation, _waiting = found
    if invocation is None:
        raise StreamNotFound("The run has no stream yet")
    return ResumedStream(
        gateway=gateway,
        invocation=invocation,
        credential=principal.credential,
        cursor=cursor_of(request),
        request_id=request_id_of(request),
    )


OPERATIONS = (
    Operation(method="GET", path="/v1/streams/{id}", handler=get_stream),
    Operation(method="GET", path="/v1/runs/{id}/stream", handler=get_run_stream),
)
