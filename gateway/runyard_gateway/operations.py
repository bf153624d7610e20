"""What a route is: how it is served, and all that the OpenAPI document says about it."""

import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Literal

from pydantic import BaseModel
from starlette.requests import Request
from starlette.types import ASGIApp

from runyard.errors import RunyardError, Unauthenticated
from runyard_gateway.answers import Answer
from runyard_gateway.auth.credentials import Lasting
from runyard_gateway.auth.principal import NOBODY, Principal
from runyard_gateway.failures import Tell
from runyard_gateway.gateway import Gateway
from runyard_gateway.parameters import Parameter

Handler = Callable[[Gateway, Request, Principal], Awaitable[ASGIApp]]
Caller = Callable[[Gateway, Request], Awaitable[Principal]]
OpenHandler = Callable[[Gateway, Request], Awaitable[ASGIApp]]


async def bearer(gateway: Gateway, request: Request) -> Principal:
    """Authenticate by the `Authorization` header alone."""
    return await gateway.authenticator.principal(request.headers.get("authorization"))


async def anybody(gateway: Gateway, request: Request) -> Principal:
    """The same, but a caller without a credential becomes `NOBODY`, and the handler decides what that allows."""
    try:
        return await bearer(gateway, request)
    except Unauthenticated as error:
        if error.fields["reason"] != "missing":
            raise
        return Principal(caller=NOBODY, credential=Lasting())


@dataclass(frozen=True, kw_only=True, slots=True)
class Described:
    """`parameters` are those besides the path's: a query with any other is refused before the handler runs. `errors`
    are those of this route, besides the ones that every route may answer (`openapi.py`).
    """

    method: Literal["GET", "POST", "PATCH", "DELETE"]
    path: str
    handler: Handler | OpenHandler
    answers: tuple[Answer, ...]
    body: type[BaseModel] | None = None
    parameters: tuple[Parameter, ...] = ()
    errors: tuple[type[RunyardError], ...] = ()

    @property
    def words(self) -> str:
        """The handler's docstring, without its `Raises`."""
        return inspect.cleandoc(self.handler.__doc__ or "").partition("\nRaises:")[0].strip()


@dataclass(frozen=True, kw_only=True, slots=True)
class Operation(Described):
    """A route whose caller is authenticated before its handler runs."""

    handler: Handler
    caller: Caller = bearer


@dataclass(frozen=True, kw_only=True, slots=True)
class OpenOperation(Described):
    """A route that answers everybody, without a token."""

    handler: OpenHandler


@dataclass(frozen=True, kw_only=True, slots=True)
class ForeignOperation:
    """A route of another protocol (`protocols/`). It is not in this API's document, and its query is not checked. A
    caller who shows nothing is let in as `NOBODY`; `tell` reports its failures, whichever layer they come from.
    """

    method: Literal["GET", "POST"]
    path: str
    handler: Handler
    tell: Tell
