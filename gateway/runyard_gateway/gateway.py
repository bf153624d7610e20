"""The parts that every route is served with. Built once by `app.py`, which owns and closes each."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Literal

from redis.asyncio import Redis
from starlette.requests import Request
from starlette.types import ASGIApp

from runyard.db.engine import Database
from runyard.errors import Unauthenticated
from runyard.queue.wakeups import Publisher
from runyard.settings import Settings
from runyard.streams.store import FrameStore
from runyard_gateway.auth import Authenticator
from runyard_gateway.credentials import Lasting
from runyard_gateway.directory import AgentDirectory
from runyard_gateway.follow_ups import FollowUps
from runyard_gateway.hub import Hub
from runyard_gateway.principal import NOBODY, Principal
from runyard_gateway.rates import Rates
from runyard_gateway.tickets import Tickets


@dataclass(frozen=True, kw_only=True, slots=True)
class Gateway:
    """`draining` is set when the process is told to leave."""

    settings: Settings
    database: Database
    redis: Redis
    store: FrameStore
    hub: Hub
    publisher: Publisher
    follow_ups: FollowUps
    directory: AgentDirectory
    authenticator: Authenticator
    rates: Rates
    tickets: Tickets
    draining: asyncio.Event

    def leave(self) -> None:
        """Readiness goes false and open streams end without a terminal frame: their readers go on elsewhere."""
        self.draining.set()
        self.hub.drain()


Handler = Callable[[Gateway, Request, Principal], Awaitable[ASGIApp]]
Caller = Callable[[Gateway, Request], Awaitable[Principal]]


async def bearer(gateway: Gateway, request: Request) -> Principal:
    """Who calls, by the `Authorization` header alone."""
    return await gateway.authenticator.principal(request.headers.get("authorization"))


async def anybody(gateway: Gateway, request: Request) -> Principal:
    """The same; who shows nothing is let in as `NOBODY`, and the handler decides what that is good for."""
    try:
        return await bearer(gateway, request)
    except Unauthenticated as error:
        if error.fields["reason"] != "missing":
            raise
        return Principal(caller=NOBODY, credential=Lasting())


@dataclass(frozen=True, kw_only=True, slots=True)
class Operation:
    """One route. The caller is authenticated before its handler runs."""

    method: Literal["GET", "POST", "PATCH", "DELETE"]
    path: str
    handler: Handler
    caller: Caller = bearer
