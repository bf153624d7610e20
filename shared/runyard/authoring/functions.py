"""`@function`: work that is no agent, called over HTTP and run by workers as agents are; a tool of models as well."""

import copy
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, Literal, overload

from runyard.authoring.errors import AuthoringError
from runyard.authoring.limits import optional_count, priority_class, queue_name
from runyard.authoring.tools import P, R, Tool, read_tool
from runyard.names import FUNCTION_PREFIX
from runyard.priorities import Priority

Auth = Literal["user", "admin", "public"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Function(Tool[P, R]):
    """Calling it calls the author's function, as with a tool, and it may stand among an agent's tools."""

    queue: str
    priority: Priority
    max_running: int | None
    """How many calls of it may run at once, over all workers, but for those that a model makes; None: any number."""

    auth: Auth
    internal: bool
    """Only services and admins may call it over HTTP; to others it does not exist."""

    def manifest(self) -> dict[str, Any]:
        """What gateways may know of it, JSON-ready.

        `{name: "fn:order_status", kind: "function", auth, internal, queue, priority, maxRunning, description,
        inputSchema, idempotent, timeoutS}`
        """
        return {
            "name": FUNCTION_PREFIX + self.name,
            "kind": "function",
            "auth": self.auth,
            "internal": self.internal,
            "queue": self.queue,
            "priority": self.priority,
            "maxRunning": self.max_running,
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
    priority: Literal["interactive", "background"] = "interactive",
    max_running: int | None = None,
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
    priority: Literal["interactive", "background"] = "interactive",
    max_running: int | None = None,
    idempotent: bool = False,
    internal: bool = False,
    auth: Auth = "user",
) -> Function[..., Any] | Callable[[Callable[..., Any]], Function[..., Any]]:
    """Offer a function, sync (it runs in a thread) or async, at `POST /v1/functions/{name}`, and to models as a tool.

    Parameters, docstring and context are as with `@tool`. What it returns is the result's `output`, what it writes
    with `ctx.stream.write` the result's text, which callers may read as it comes. `timeout_s` is all the time that it
    has. Where a worker died while it ran, it runs again only if it is `idempotent`. `auth`: who may call it over HTTP,
    every user, admins, or everybody without a token. `internal=True` keeps it to services and admins. `queue`,
    `priority` and `max_running` are as with `agent(...)`, of calls over HTTP.

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
        return Function(
            **{field.name: getattr(read, field.name) for field in fields(read)},
            queue=queue_name(owner, queue),
            priority=priority_class(owner, priority),
            max_running=optional_count(owner, "max_running", max_running),
            auth=auth,
            internal=internal,
        )

    return decorate if handler is None else decorate(handler)
