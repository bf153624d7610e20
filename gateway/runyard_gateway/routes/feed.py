"""`GET /v1/feed`: what changes of the caller's runs and transcripts, on all their devices; its tickets."""

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from runyard.errors import FeedGone, StreamOverloaded
from runyard_gateway import shapes
from runyard_gateway.answers import EVENT_STREAM, Answer
from runyard_gateway.auth.event_source import TICKET, Door, seat_headers, ticket_answer
from runyard_gateway.auth.principal import Principal
from runyard_gateway.failures import request_id_of
from runyard_gateway.feed import position
from runyard_gateway.gateway import Gateway
from runyard_gateway.open_streams import reader_behind
from runyard_gateway.operations import Operation, bearer
from runyard_gateway.parameters import LAST_EVENT_ID, SINCE
from runyard_gateway.requests import Nothing, cursor_of, read_body
from runyard_gateway.sse import raw_headers
from runyard_gateway.streaming import EndlessStream

DOOR = Door(place=lambda _: "\0feed", otherwise=bearer, is_alike=False)  # no stream's id can be that


async def get_feed(gateway: Gateway, request: Request, principal: Principal) -> ASGIApp:
    """Follow what changes in the caller's runs and transcripts: `run`, `message`, `deleted`. It begins now, or after a
    cursor, and has no end.

    Raises:
        FeedGone: the cursor is too old.
    """
    had = cursor_of(request)
    cursor = await gateway.feed.begin(None if had is None else had + 1)
    reader = reader_behind(principal, request)
    gateway.open_streams.check(reader)
    answer = EndlessStream(
        reading=gateway.feed.watch(principal.scope),
        credential=principal.credential,
        cursor=cursor,
        first=position(cursor),
        request_id=request_id_of(request),
        headers=raw_headers(seat_headers(request)),
    )
    return gateway.open_streams.counted(reader, answer)


async def issue_feed_ticket(gateway: Gateway, request: Request, principal: Principal) -> Response:
    """Get a ticket for an `EventSource` on the feed. A browser also gets a seat: a cookie for the feed's path."""
    await read_body(request, Nothing, limit_bytes=gateway.settings.body_max_bytes)
    return ticket_answer(request, *await DOOR.ticket(gateway, request, principal))


OPERATIONS = (
    Operation(
        method="GET",
        path="/v1/feed",
        handler=get_feed,
        caller=DOOR.enter,
        parameters=(LAST_EVENT_ID, SINCE, TICKET),
        answers=(Answer(status=200, description="The changes, one event each.", media=EVENT_STREAM),),
        errors=(FeedGone, StreamOverloaded),
    ),
    Operation(
        method="POST",
        path="/v1/feed/tickets",
        handler=issue_feed_ticket,
        body=Nothing,
        answers=(Answer(status=201, description="The ticket.", shape=shapes.Ticket),),
    ),
)
