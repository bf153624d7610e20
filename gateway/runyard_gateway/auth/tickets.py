"""Tickets and seats: they take the place of a caller's credential at one place, since a browser's `EventSource` cannot
send a header.

A **ticket** goes into the URL. It opens one place (a stream, the feed, a room) once, within a minute. The browser that
asks for it or uses it also gets a **seat**: a cookie for the path of that place, with which the `EventSource` can
reconnect although its ticket is used up. Both are random. Redis stores the principal under their SHA-256, so any
gateway accepts them. They only say who calls: what the caller may read is checked as always. A ticket begins with a
hash of the caller to whom it was given, which is no secret.

    <prefix>:ticket:<sha256 of place, NUL, ticket>   `principal_json.py`; TTL 60 s, gone with its first use
    <prefix>:seat:<sha256 of place, NUL, seat>       the same; TTL a day, less when the caller's token ends before
"""

import hashlib
import math
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

import orjson
from redis.asyncio import Redis

from runyard.streams.connect import answered
from runyard_gateway.auth.principal import Identity, Principal, Service
from runyard_gateway.auth.principal_json import to_dict

TICKET_S = 60
SEAT_S = 86_400
SECRET_BYTES = 32

Recall = Callable[[Mapping[str, Any]], Awaitable[Principal]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Seat:
    secret: str
    ttl_s: int


class Tickets:
    """Every method raises `StoreUnavailable` while Redis does not answer. Those that return a caller raise
    `Unauthenticated` if the caller's credential has ended.
    """

    def __init__(self, client: Redis, *, prefix: str, recall: Recall) -> None:
        self._client = client
        self._prefix = prefix
        self._recall = recall

    async def issue(self, place: str, principal: Principal) -> str:
        ticket = f"{_holder(principal)}.{secrets.token_urlsafe(SECRET_BYTES)}"
        async with answered():
            await self._client.set(self._ticket_key(place, ticket), orjson.dumps(to_dict(principal)), ex=TICKET_S)
        return ticket

    async def redeem(self, place: str, ticket: str) -> Principal | None:
        """Use a ticket up; returns its owner. None: it was used, is too old, or is for another place."""
        async with answered():
            found = await self._client.getdel(self._ticket_key(place, ticket))
        return None if found is None else await self._recall(orjson.loads(found))

    async def seat(self, place: str, principal: Principal) -> Seat:
        secret, value = secrets.token_urlsafe(SECRET_BYTES), to_dict(principal)
        ttl_s = max(1, math.ceil(min(SEAT_S, value.get("endsAtS", math.inf) - time.time())))
        async with answered():
            await self._client.set(self._seat_key(place, secret), orjson.dumps(value), ex=ttl_s)
        return Seat(secret=secret, ttl_s=ttl_s)

    async def seated(self, place: str, seat: str) -> Principal | None:
        """The owner of a seat. None: it has expired, or is for another place."""
        async with answered():
            found = await self._client.get(self._seat_key(place, seat))
        return None if found is None else await self._recall(orjson.loads(found))

    def _ticket_key(self, place: str, secret: str) -> str:
        return f"{self._prefix}:ticket:{_digest(place, secret)}"

    def _seat_key(self, place: str, secret: str) -> str:
        return f"{self._prefix}:seat:{_digest(place, secret)}"


def names(ticket: str, principal: Principal) -> bool:
    """Whether this ticket, used or not, was given to this caller."""
    return ticket.partition(".")[0] == _holder(principal)


def _holder(principal: Principal) -> str:
    match principal.caller:
        case Identity(tenant_id=tenant_id, user_id=user_id):
            who = ["user", tenant_id, user_id]
        case Service(name=name):
            who = ["service", name]
    return hashlib.sha256(orjson.dumps(who)).hexdigest()[:16]


def _digest(place: str, secret: str) -> str:
    return hashlib.sha256(f"{place}\0{secret}".encode(errors="surrogatepass")).hexdigest()
