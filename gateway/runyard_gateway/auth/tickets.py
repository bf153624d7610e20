"""What stands for a caller's credential on one stream, where a browser's `EventSource` can send no header.

A **ticket** goes into the stream's URL: it opens the stream once, within a minute. Whoever asked for it, or used it,
has a **seat**: a cookie for the path of that stream alone, with which the `EventSource` comes back by itself although
its URL names a ticket that is used. Both are random; Redis holds who they are for, under their SHA-256, so that any
gateway takes them. They say who calls, no more: what the caller may read is asked of the rows, as ever.

    <prefix>:ticket:<sha256 of stream, NUL, ticket>   `remembered.py`; TTL 60 s, gone with its first use
    <prefix>:seat:<sha256 of stream, NUL, seat>       the same; TTL a day, less when the caller's token ends before
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
from runyard_gateway.auth.principal import Principal
from runyard_gateway.auth.remembered import written

TICKET_S = 60
SEAT_S = 86_400
SECRET_BYTES = 32

Recall = Callable[[Mapping[str, Any]], Awaitable[Principal]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Seat:
    secret: str
    ttl_s: int


class Tickets:
    """Every method raises `StoreUnavailable` while Redis does not answer; those that recall a caller, `Unauthenticated`
    when what they had shown is no longer good.
    """

    def __init__(self, client: Redis, *, prefix: str, recall: Recall) -> None:
        self._client = client
        self._prefix = prefix
        self._recall = recall

    async def issue(self, stream_id: str, principal: Principal) -> tuple[str, Seat]:
        """A ticket, and a seat for the browser that asked."""
        ticket = secrets.token_urlsafe(SECRET_BYTES)
        async with answered():
            await self._client.set(self._ticket_key(stream_id, ticket), orjson.dumps(written(principal)), ex=TICKET_S)
        return ticket, await self._seat(stream_id, principal)

    async def redeem(self, stream_id: str, ticket: str) -> tuple[Principal, Seat] | None:
        """Use a ticket up; None: it is used, too old, or none for this stream."""
        async with answered():
            found = await self._client.getdel(self._ticket_key(stream_id, ticket))
        if found is None:
            return None
        principal = await self._recall(orjson.loads(found))
        return principal, await self._seat(stream_id, principal)

    async def seated(self, stream_id: str, seat: str) -> Principal | None:
        """Whose seat it is; None: nobody's any more, or none at this stream."""
        async with answered():
            found = await self._client.get(self._seat_key(stream_id, seat))
        return None if found is None else await self._recall(orjson.loads(found))

    async def _seat(self, stream_id: str, principal: Principal) -> Seat:
        secret, value = secrets.token_urlsafe(SECRET_BYTES), written(principal)
        ttl_s = max(1, math.ceil(min(SEAT_S, value.get("endsAtS", math.inf) - time.time())))
        async with answered():
            await self._client.set(self._seat_key(stream_id, secret), orjson.dumps(value), ex=ttl_s)
        return Seat(secret=secret, ttl_s=ttl_s)

    def _ticket_key(self, stream_id: str, secret: str) -> str:
        return f"{self._prefix}:ticket:{_digest(stream_id, secret)}"

    def _seat_key(self, stream_id: str, secret: str) -> str:
        return f"{self._prefix}:seat:{_digest(stream_id, secret)}"


def _digest(stream_id: str, secret: str) -> str:
    return hashlib.sha256(f"{stream_id}\0{secret}".encode(errors="surrogatepass")).hexdigest()
