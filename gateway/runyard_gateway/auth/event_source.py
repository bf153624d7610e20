"""Authenticating a browser's `EventSource`. It cannot send a header: a ticket is in its URL, or a seat in a cookie
(`tickets.py`).

Only routes behind a `Door` accept them.
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
    name="ticket", description="Used instead of a token: `POST` to this path with `/tickets` appended returns one."
)
COOKIE = "runyard_seat"


@dataclass(frozen=True, kw_only=True, slots=True)
class Door:
    """A route that accepts tickets. `place`: the name of what it opens, equal for all callers. `otherwise`:
    authenticates callers without a ticket.

    `is_alike`: whether all callers who may enter get the same there. If not, a seat is valid only together with a
    ticket of the same caller: a browser keeps one cookie for a path, and another of its users may have received it.
    """

    place: Callable[[Request], str]
    otherwise: Caller
    is_alike: bool

    async def enter(self, gateway: Gateway, request: Request) -> Principal:
        """Authenticate a reader: by a header, or else by a ticket, or else by a seat. After a ticket, `seat_headers`
        returns the new seat.

        Raises:
            Unauthenticated, NotReady, StoreUnavailable: as `Authenticator.principal`.
        """
        ticket, seat = TICKET.given(request), request.cookies.get(COOKIE)
        shows_nothing = ticket is None and (seat is None or not self.is_alike)
        if "authorization" in request.headers or shows_nothing or request.method != "GET":
            return await self.otherwise(gateway, request)
        place = self.place(request)
        if ticket is not None and (holder := await gateway.tickets.redeem(place, ticket)) is not None:
            request.state.seat = await gateway.tickets.seat(place, holder)
            return holder
        seated = None if seat is None else await gateway.tickets.seated(place, seat)
        if seated is not None and (self.is_alike or (ticket is not None and names(ticket, seated))):
            return seated
        raise Unauthenticated("the ticket was used or is too old: get another one", reason="invalid")

    async def ticket(self, gateway: Gateway, request: Request, principal: Principal) -> tuple[shapes.Ticket, Seat]:
        """A ticket for this caller, and a seat for the browser that asked. Raises `StoreUnavailable`."""
        place, expires_at = self.place(request), now_ms() + 1000 * TICKET_S
        ticket = await gateway.tickets.issue(place, principal)
        return {"ticket": ticket, "expiresAt": to_iso(expires_at)}, await gateway.tickets.seat(place, principal)


def ticket_answer(request: Request, told: shapes.Ticket, seat: Seat) -> Response:
    answer = json_answer(told, status=201, headers={"Cache-Control": "no-store"})
    _set_seat(answer, _path(request).removesuffix("/tickets"), request, seat)
    return answer


def seat_headers(request: Request) -> dict[str, str]:
    """Headers of the answer to a reader who came with a ticket."""
    seat: Seat | None = getattr(request.state, "seat", None)
    if seat is None:
        return {}
    answer = Response()
    _set_seat(answer, _path(request), request, seat)
    return {"Set-Cookie": answer.headers["set-cookie"]}


def _path(request: Request) -> str:
    """The path as the browser wrote it, since the browser compares it with the cookie's path. A semicolon is escaped,
    because it would end the path in the cookie.
    """
    raw: bytes = request.scope["raw_path"]
    return raw.decode().replace(";", "%3B")


def _set_seat(answer: Response, path: str, request: Request, seat: Seat) -> None:
    """No script can read the cookie, no page of another site can send it, and no other route receives it."""
    answer.set_cookie(
        COOKIE,
        seat.secret,
        max_age=seat.ttl_s,
        path=path,
        secure=request.url.scheme == "https",
        httponly=True,
        samesite="strict",
    )
