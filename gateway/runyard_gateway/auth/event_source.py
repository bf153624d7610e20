"""Who reads: by a header like every caller, or by what a browser's `EventSource` has, its URL and its cookies.

No route looks at those two but the ones that a `Door` is in front of.
"""

from collections.abc import Callable
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response

from runyard.clock import now_ms, to_iso
from runyard.errors import Unauthenticated
from runyard_gateway import shapes
from runyard_gateway.answers import json_answer
from runyard_gateway.auth.principal import Principal
from runyard_gateway.auth.tickets import TICKET_S, Seat, names
from runyard_gateway.gateway import Gateway
from runyard_gateway.operations import Caller
from runyard_gateway.parameters import Parameter

TICKET = Parameter(
    name="ticket", description="Stands for the token: `POST` to this path with `/tickets` behind it gives one."
)
COOKIE = "runyard_seat"


@dataclass(frozen=True, kw_only=True, slots=True)
class Door:
    """What opens by a ticket. `place` names it, whoever asks for it; `otherwise` tells who calls without one.

    `is_alike`: all who are let in find the same there. Where each finds their own, a seat counts only for whom the
    URL's ticket was given to: a browser has one cookie for a path, and another user of it may have sat down since.
    """

    place: Callable[[Request], str]
    otherwise: Caller
    is_alike: bool

    async def enter(self, gateway: Gateway, request: Request) -> Principal:
        """A header counts before a ticket, a ticket before a seat. `seat_headers` has the seat that a ticket gives.

        Raises:
            Unauthenticated, NotReady, StoreUnavailable
        """
        ticket, seat = TICKET.given(request), request.cookies.get(COOKIE)
        shows_nothing = ticket is None and (seat is None or not self.is_alike)
        if "authorization" in request.headers or shows_nothing:
            return await self.otherwise(gateway, request)
        place = self.place(request)
        if ticket is not None and (holder := await gateway.tickets.redeem(place, ticket)) is not None:
            request.state.seat = await gateway.tickets.seat(place, holder)
            return holder
        seated = None if seat is None else await gateway.tickets.seated(place, seat)
        if seated is not None and (self.is_alike or (ticket is not None and names(ticket, seated))):
            return seated
        raise Unauthenticated("the ticket is used or too old: get another one", reason="invalid")

    async def ticket(self, gateway: Gateway, request: Request, principal: Principal) -> tuple[shapes.Ticket, Seat]:
        """For this caller, and a seat for the browser that asked. Raises `StoreUnavailable`."""
        place, expires_at = self.place(request), now_ms() + 1000 * TICKET_S
        ticket = await gateway.tickets.issue(place, principal)
        return {"ticket": ticket, "expiresAt": to_iso(expires_at)}, await gateway.tickets.seat(place, principal)


def ticket_answer(request: Request, told: shapes.Ticket, seat: Seat) -> Response:
    answer = json_answer(told, status=201, headers={"Cache-Control": "no-store"})
    _set_seat(answer, _path(request).removesuffix("/tickets"), request, seat)
    return answer


def seat_headers(request: Request) -> dict[str, str]:
    """For the answer to a reader who came with a ticket."""
    seat: Seat | None = getattr(request.state, "seat", None)
    if seat is None:
        return {}
    answer = Response()
    _set_seat(answer, _path(request), request, seat)
    return {"Set-Cookie": answer.headers["set-cookie"]}


def _path(request: Request) -> str:
    """As the browser wrote it, which compares a cookie's path with that; but a semicolon would end it."""
    raw: bytes = request.scope["raw_path"]
    return raw.decode().replace(";", "%3B")


def _set_seat(answer: Response, path: str, request: Request, seat: Seat) -> None:
    """No script reads the cookie, no other site's page sends it, and no other route is sent it."""
    answer.set_cookie(
        COOKIE,
        seat.secret,
        max_age=seat.ttl_s,
        path=path,
        secure=request.url.scheme == "https",
        httponly=True,
        samesite="strict",
    )
