"""The transcript of a run: read page by page, appended to by hand, cleared."""

from starlette.requests import Request
from starlette.responses import Response

from runyard.clock import now_ms
from runyard.db import reads
from runyard.errors import InvalidArgs
from runyard.lifecycle.editing import append_messages, clear_messages
from runyard_gateway import paging
from runyard_gateway.answers import json_answer
from runyard_gateway.closing import forget_streams
from runyard_gateway.gateway import Gateway, Operation
from runyard_gateway.principal import Principal
from runyard_gateway.requests import (
    AppendMessages,
    checked_messages,
    known_query,
    query_choice,
    query_int,
    read_body,
)
from runyard_gateway.routes.runs import run_not_found
from runyard_gateway.views import message_view

MESSAGES_DEFAULT, MESSAGES_MAX = 50, 500


async def list_messages(gateway: Gateway, request: Request, principal: Principal) -> Response:
    """Oldest first, or `order=desc`; a page of a transcript that grows meanwhile loses and repeats nothing."""
    known_query(request, "limit", "cursor", "order")
    limit = query_int(request, "limit", default=MESSAGES_DEFAULT, low=1, high=MESSAGES_MAX)
    order = query_choice(request, "order", default="asc", choices=("asc", "desc"))
    listing = ("messages", request.path_params["id"], order)
    found = await gateway.database.read(
        reads.messages_of,
        request.path_params["id"],
        principal.scope,
        after_seq=_seq_position(listing, request),
        descending=order == "desc",
        limit=limit + 1,
    )
    if found is None:
        raise run_not_found(request)
    page = found[:limit]
    cursor = paging.seal(listing, page[-1].seq) if len(found) > limit else None
    return json_answer({"items": [message_view(message) for message in page], "nextCursor": cursor})


async def append(gateway: Gateway, request: Request, principal: Principal) -> Response:
    """Append to the transcript of a run that is not at work."""
    known_query(request)
    body = await read_body(request, AppendMessages, limit_bytes=gateway.settings.body_max_bytes)
    messages = checked_messages(body.messages, principal)
    rows = await gateway.database.write(
        append_messages, request.path_params["id"], principal.scope, messages, at=now_ms()
    )
    return json_answer({"items": [message_view(row) for row in rows]}, status=201)


async def clear(gateway: Gateway, request: Request, principal: Principal) -> Response:
    """Forget the transcript of a run that is not at work, its results and streams with it."""
    known_query(request)
    streams = await gateway.database.write(clear_messages, request.path_params["id"], principal.scope, at=now_ms())
    await forget_streams(gateway, streams)
    return Response(status_code=204)


def _seq_position(listing: paging.Listing, request: Request) -> int | None:
    cursor = request.query_params.get("cursor")
    if cursor is None:
        return None
    match paging.unseal(listing, cursor):
        case [int(seq)]:
            return seq
        case _:
            raise InvalidArgs("cursor is not one that this list gave", fields=["cursor"])


OPERATIONS = (
    Operation(method="GET", path="/v1/runs/{id}/messages", handler=list_messages),
    Operation(method="POST", path="/v1/runs/{id}/messages", handler=append),
    Operation(method="DELETE", path="/v1/runs/{id}/messages", handler=clear),
)
