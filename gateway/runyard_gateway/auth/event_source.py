"""Who reads a stream: by a header like every caller, or by what a browser's `EventSource` has: its URL and its cookies.

`GET /v1/streams/{id}` is the one route that looks at them.
"""

from starlette.requests import Request
from starlette.responses import Response

from runyard.errors import Unauthenticated
from runyard_gateway.auth.principal import Principal
from runyard_gateway.auth.tickets import Seat
from runyard_gateway.gateway import Gateway
from runyard_gateway.operations import anybody
from runyard_gateway.parameters import Parameter

TICKET = Parameter(name="ticket", description="Stands for the token: see `POST /v1/streams/{id}/tickets`.")
COOKIE = "runyard_seat"


async def reader(gateway: Gateway, request: Request) -> Principal:
    """A header counts before a ticket, a ticket before a seat; who has none of them is `NOBODY`. `seat_headers` has the
    seat that a used ticket gives.

    Raises:
        Unauthenticated, NotReady, StoreUnavailable
    """
    stream_id = request.path_params["id"]
    ticket, seat = TICKET.given(request), request.cookies.get(COOKIE)
    if "authorization" in request.headers or (ticket is None and seat is None):
        return await anybody(gateway, request)
    if ticket is not None and (redeemed := await gateway.tickets.redeem(stream_id, ticket)) is not None:
        principal, request.state.seat = redeemed
        return principal
    if seat is not None and (seated := await gateway.tickets.seated(stream_id, seat)) is not None:
        return seated
    raise Unauthenticated("the ticket is used or too old: get another one", reason="invalid")


def seat_headers(request: Request) -> dict[str, str]:
    """For the answer to a reader who came with a ticket."""
    seat: Seat | None = getattr(request.state, "seat", None)
    if seat is None:
        return {}
    answer = Response()
    set_seat(answer, request, request.path_params["id"], seat)
    return {"Set-Cookie": answer.headers["set-cookie"]}


def set_seat(answer: Response, request: Request, stream_id: str, seat: Seat) -> None:
    """No script reads the cookie, no other site's page sends it, and no other route is sent it."""
    answer.set_cookie(
        COOKIE,
        seat.secret,
        max_age=seat.ttl_s,
        path=f"/v1/streams/{stream_id}",
        secure=request.url.scheme == "https",
        httponly=True,
        samesite="strict",
    )
