"""`@function`: work that is no agent, called over HTTP and run by workers as agents are; a tool of models as well."""

import copy
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, Literal, overload

from runyard.authoring.errors import AuthoringError
from runyard.authoring.tools import P, R, Tool, read_tool
from runyard.names import FUNCTION_PREFIX, PART, PART_RULE

Auth = Literal["user", "admin", "public"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Function(Tool[P, R]):
    """Calling it calls the author's function, as with a tool, and it may stand among an agent's tools."""

    queue: str
    auth: Auth
    internal: bool
    """Only services and admins may call it over HTTP; to others it does not exist."""

    def manifest(self) -> dict[str, Any]:
        """What gateways may know of it, JSON-ready.

        `{name: "fn:order_status", kind: "function", auth, internal, queue, description, inputSchema, idempotent,
        timeoutS}`
        """
        return {
            "name": FUNCTION_PREFIX + self.name,
            "kind": "function",
            "auth": self.auth,
            "internal": self.internal,
            "queue": self.queue,
            "description": self.description,
            "inputSchema": copy.deepcopy(self.schema),
            "idempotent": self.idempotent,
            "timeoutS": self.timeout_s,
        }


@overload
def function(handler: Callable[P, R], /) -> Function[P, R]: ...
@overload
def function(
    *,
    name: str | None = None,
    description: str | None = None,
    timeout_s: float = 120,
    queue: str = "default",
    idempotent: bool = False,
    internal: bool = False,
    auth: Auth = "user",
) -> Callable[[Callable[P, R]], Function[P, R]]: ...
def function(
    handler: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    timeout_s: float = 120,
    queue: str = "default",
    idempotent: bool = False,
    internal: bool = False,
    auth: Auth = "user",
) -> Function[..., Any] | Callable[[Callable[..., Any]], Function[..., Any]]:
    """Offer a function, sync (it runs in a thread) or async, at `POST /v1/functions/{name}`, and to models as a tool.

    Parameters, docstring and context are as with `@tool`. What it returns is the result's `output`, what it writes
    with `ctx.stream.write` the result's text, which callers may read as it comes. `timeout_s` is all the time that it
    has. Where a worker died while it ran, it runs again only if it is `idempotent`. `auth`: who may call it over HTTP,
    every user, admins, or everybody without a token. `internal=True` keeps it to services and admins.

    Raises:
        AuthoringError: what cannot become a schema, naming function and parameter; an option that cannot be.
    """

    def decorate(handler: Callable[..., Any]) -> Function[..., Any]:
        read = read_tool(
            handler,
            kind="function",
            name=name,
            description=description,
            timeout_s=timeout_s,
            exclusive=False,
            idempotent=idempotent,
        )
        owner = f"function {read.name!r}"
        if auth not in ("user", "admin", "public"):
            raise AuthoringError(f"{owner}: auth must be 'user', 'admin' or 'public', not {auth!r}")
        if internal and auth == "public":
            raise AuthoringError(f"{owner}: internal=True keeps out whom auth='public' lets in")
        if not isinstance(queue, str) or PART.fullmatch(queue) is None:
            raise AuthoringError(f"{owner}: queue must be {PART_RULE}: not {queue!r}")
        of_tool = {field.name: getattr(read, field.name) for field in fields(read)}
        return Function(**of_tool, queue=queue, auth=auth, internal=internal)

    return decorate if handler is None else decorate(handler)
