"""Streams, from any cursor: `GET /v1/streams/{id}`, `GET /v1/runs/{id}/stream` (the newest invocation's); tickets."""

from collections.abc import Mapping

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from runyard.db import reads
from runyard.errors import RunNotFound, StreamGone, StreamNotFound, StreamOverloaded
from runyard.ids import StreamId
from runyard_gateway import shapes
from runyard_gateway.answers import EVENT_STREAM, STREAM_ID, Answer, nothing
from runyard_gateway.auth.authenticator import unauthenticated
from runyard_gateway.auth.event_source import TICKET, Door, seat_headers, ticket_answer
from runyard_gateway.auth.principal import NOBODY, Principal
from runyard_gateway.failures import request_id_of
from runyard_gateway.gateway import Gateway
from runyard_gateway.open_streams import Reader, reader_behind
from runyard_gateway.operations import Operation, anybody
from runyard_gateway.parameters import LAST_EVENT_ID, SINCE
from runyard_gateway.requests import Nothing, cursor_of, read_body
from runyard_gateway.routes.runs import run_not_found
from runyard_gateway.streaming import ResumedStream

DOOR = Door(place=lambda request: request.path_params["id"], otherwise=anybody, is_alike=True)


async def get_stream(gateway: Gateway, request: Request, principal: Principal) -> ASGIApp:
    """Read a stream from any frame on, to its end."""
    owner = await _owner(gateway, request, principal)
    stream_id = StreamId(request.path_params["id"])
    return _resumed(gateway, request, principal, stream_id, owner, headers=seat_headers(request))


async def issue_ticket(gateway: Gateway, request: Request, principal: Principal) -> Response:
    """Get a ticket for an `EventSource`. A browser also gets a seat: a cookie for this stream's path."""
    await read_body(request, Nothing, limit_bytes=gateway.settings.body_max_bytes)
    await _owner(gateway, request, principal)
    told, seat = await DOOR.ticket(gateway, request, principal)
    of_stream: shapes.StreamTicket = {**told, "streamId": request.path_params["id"]}
    return ticket_answer(request, of_stream, seat)


async def get_run_stream(gateway: Gateway, request: Request, principal: Principal) -> ASGIApp:
    """Read the stream of a run's newest invocation."""
    found = await gateway.database.read(reads.run_of, request.path_params["id"], principal.scope)
    if found is None:
        raise run_not_found(request)
    run, invocation, _waiting = found
    if invocation is None:
        raise StreamNotFound("The run has no stream yet")
    return _resumed(gateway, request, principal, invocation.stream_id, (run.tenant_id, run.user_id))


def _resumed(
    gateway: Gateway,
    request: Request,
    principal: Principal,
    stream_id: StreamId,
    owner: Reader,
    *,
    headers: Mapping[str, str] | None = None,
) -> ASGIApp:
    """Raises `StreamOverloaded`."""
    reader = reader_behind(principal, request, owner=owner)
    gateway.open_streams.check(reader)
    answer = ResumedStream(
        gateway=gateway,
        stream_id=stream_id,
        credential=principal.credential,
        cursor=cursor_of(request),
        request_id=request_id_of(request),
        headers=headers or {},
    )
    return gateway.open_streams.counted(reader, answer)


async def _owner(gateway: Gateway, request: Request, principal: Principal) -> Reader:
    """Whose stream it is. For the run of a public function called by nobody, knowing the id is enough.

    Raises:
        StreamNotFound: unknown, or not the caller's.
        Unauthenticated: the same, if the caller shows nothing.
    """
    for scope in (principal.scope, NOBODY.scope):
        found = await gateway.database.read(reads.owner_of_stream, request.path_params["id"], scope)
        if found is not None:
            return found
    if principal.is_nobody:
        raise unauthenticated()
    raise StreamNotFound("Unknown or expired stream id")


STREAM_ANSWERS = (
    Answer(status=200, description="The frames behind the cursor.", media=EVENT_STREAM, headers=(STREAM_ID,)),
    nothing("It has ended, and the reader has all of it: an `EventSource` stops.", headers=(STREAM_ID,)),
)

OPERATIONS = (
    Operation(
        method="GET",
        path="/v1/streams/{id}",
        handler=get_stream,
        caller=DOOR.enter,
        parameters=(LAST_EVENT_ID, SINCE, TICKET),
        answers=STREAM_ANSWERS,
        errors=(StreamNotFound, StreamGone, StreamOverloaded),
    ),
    Operation(
        method="POST",
        path="/v1/streams/{id}/tickets",
        handler=issue_ticket,
        body=Nothing,
        answers=(Answer(status=201, description="The ticket.", shape=shapes.StreamTicket),),
        errors=(StreamNotFound,),
    ),
    Operation(
        method="GET",
        path="/v1/runs/{id}/stream",
        handler=get_run_stream,
        parameters=(LAST_EVENT_ID, SINCE),
        answers=STREAM_ANSWERS,
        errors=(RunNotFound, StreamNotFound, StreamGone, StreamOverloaded),
    ),
)
