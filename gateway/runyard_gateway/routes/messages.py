"""The transcript of a run: read page by page, appended to by hand, cleared."""

from starlette.requests import Request
from starlette.responses import Response

from runyard.clock import now_ms
from runyard.db import reads
from runyard.errors import RunBusy, RunNotFound
from runyard.lifecycle.editing import append_messages, clear_messages
from runyard_gateway import paging, shapes
from runyard_gateway.answers import Answer, json_answer, nothing
from runyard_gateway.auth.principal import Principal
from runyard_gateway.closing import forget_streams
from runyard_gateway.gateway import Gateway
from runyard_gateway.operations import Operation
from runyard_gateway.parameters import CURSOR, Choice, WholeNumber
from runyard_gateway.requests import AppendMessages, checked_messages, read_body
from runyard_gateway.routes.runs import run_not_found
from runyard_gateway.views import message_view

LIMIT = WholeNumber(name="limit", description="Messages a page.", default=50, low=1, high=500)
ORDER = Choice(name="order", description="By `seq`.", choices=("asc", "desc"), default="asc")


async def list_messages(gateway: Gateway, request: Request, principal: Principal) -> Response:
    """List the messages of a run. If the transcript grows meanwhile, no page misses or repeats a message."""
    limit, order = LIMIT.read(request), ORDER.read(request)
    listing = ("messages", request.path_params["id"], order)
    found = await gateway.database.read(
        reads.messages_of,
        request.path_params["id"],
        principal.scope,
        after_seq=paging.seq_position(listing, CURSOR.read(request)),
        descending=order == "desc",
        limit=limit + 1,
    )
    if found is None:
        raise run_not_found(request)
    page = found[:limit]
    cursor = paging.seal(listing, page[-1].seq) if len(found) > limit else None
    return json_answer({"items": [message_view(message) for message in page], "nextCursor": cursor})


async def append(gateway: Gateway, request: Request, principal: Principal) -> Response:
    """Append to the transcript of a run that is not at work. Only services may append what a model or a tool said."""
    body = await read_body(request, AppendMessages, limit_bytes=gateway.settings.body_max_bytes)
    messages = checked_messages(body.messages, principal)
    rows = await gateway.database.write(
        append_messages, request.path_params["id"], principal.scope, messages, at=now_ms()
    )
    return json_answer({"items": [message_view(row) for row in rows]}, status=201)


async def clear(gateway: Gateway, request: Request, principal: Principal) -> Response:
    """Delete the transcript of a run that is not at work, with its results and streams."""
    streams = await gateway.database.write(clear_messages, request.path_params["id"], principal.scope, at=now_ms())
    await forget_streams(gateway, streams)
    return Response(status_code=204)


OPERATIONS = (
    Operation(
        method="GET",
        path="/v1/runs/{id}/messages",
        handler=list_messages,
        parameters=(LIMIT, CURSOR, ORDER),
        answers=(Answer(status=200, description="A page of them.", shape=shapes.Page[shapes.Message]),),
        errors=(RunNotFound,),
    ),
    Operation(
        method="POST",
        path="/v1/runs/{id}/messages",
        handler=append,
        body=AppendMessages,
        answers=(Answer(status=201, description="The new rows.", shape=shapes.Items[shapes.Message]),),
        errors=(RunNotFound, RunBusy),
    ),
    Operation(
        method="DELETE",
        path="/v1/runs/{id}/messages",
        handler=clear,
        answers=(nothing("They are gone."),),
        errors=(RunNotFound, RunBusy),
    ),
)
