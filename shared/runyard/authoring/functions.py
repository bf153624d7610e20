"""`@function`: work without a model, called over HTTP and run by workers as agents are; models may call it as a tool
too.
"""

import copy
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, Literal, overload

from runyard.authoring.errors import AuthoringError
from runyard.authoring.limits import flag, optional_count, priority_class, queue_name
from runyard.authoring.tools import P, R, Tool, read_tool
from runyard.names import FUNCTION_PREFIX
from runyard.priorities import Priority

Auth = Literal["user", "admin", "public"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Function(Tool[P, R]):
    """A function that is called over HTTP. Like a tool it can be called directly, and it may be one of an agent's
    tools.
    """

    queue: str
    priority: Priority
    max_running: int | None
    """How many calls of it may run at once over all workers, those that models make not counted; None: any number."""

    auth: Auth
    internal: bool
    """Whether only services and admins may call it over HTTP. To others it does not exist."""

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
    """Serve a function, sync (it runs in a thread) or async, at `POST /v1/functions/{name}`, and offer it to models as
    a tool.

    Parameters, docstring and context work as with `@tool`. What it returns is the result's `output`; what it writes
    with `ctx.stream.write` is the result's text, which callers may read as it is written.

    Args:
        name: What callers and models call it; by default the function's name.
        description: What is said of it; by default the docstring.
        timeout_s: How long it may take in all.
        queue: Where calls over HTTP wait, as with `agent(...)`.
        priority: The class of calls over HTTP that do not name one, as with `agent(...)`.
        max_running: How many calls over HTTP may run at once, over all workers; None: any number.
        idempotent: It may run again after a worker died while it ran.
        internal: Only services and admins may call it over HTTP.
        auth: Who may call it over HTTP: every user, admins, or everybody, even without a token ("public").

    Raises:
        AuthoringError: something cannot become a schema, or an option is not allowed; the message names the function.
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
        if flag(owner, "internal", internal) and auth == "public":
            raise AuthoringError(f"{owner}: internal=True contradicts auth='public'")
        return Function(
            **{field.name: getattr(read, field.name) for field in fields(read)},
            queue=queue_name(owner, queue),
            priority=priority_class(owner, priority),
            max_running=optional_count(owner, "max_running", max_running),
            auth=auth,
            internal=internal,
        )

    return decorate if handler is None else decorate(handler)
