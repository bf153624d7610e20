"""`RunContext`: what tools and system prompt functions receive besides the model's arguments."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from runyard.authoring.cancellation import Cancellation
from runyard.authoring.rooms import Rooms
from runyard.authoring.stream import Stream
from runyard.ids import InvocationId, RunId


class Log(Protocol):
    """A structured logger with the run's ids bound: an event's name, then fields."""

    def debug(self, event: str, /, **fields: Any) -> Any: ...

    def info(self, event: str, /, **fields: Any) -> Any: ...

    def warning(self, event: str, /, **fields: Any) -> Any: ...

    def error(self, event: str, /, **fields: Any) -> Any: ...

    def exception(self, event: str, /, **fields: Any) -> Any: ...


@dataclass(frozen=True, kw_only=True, eq=False)
class RunContext:
    """Built by the worker for each tool call and each evaluation of a system prompt function.

    A parameter annotated `RunContext` receives it; the model never sees that parameter.
    """

    run_id: RunId
    session_id: str | None
    invocation_id: InvocationId
    agent: str
    """The name of the agent whose run it is; `fn:<name>` when a function was called by itself."""

    user_id: str
    tenant_id: str
    """The tenant that owns the run. `user_id` is the user who owns it, whoever made this call: "" when a public
    function was called without a token."""

    roles: frozenset[str]
    """The caller's roles. An admin may call on a run that another user owns."""

    metadata: Mapping[str, Any]
    """What the caller attached to the run."""

    context: Mapping[str, Any] | None
    """What a service told the tools of this run; other callers can neither set nor change it. None: nothing."""

    call_id: str | None
    """The model's id of this tool call; None outside a tool call."""

    idempotency_key: str | None
    """The same for every execution of one tool call, so that a repeated one can be recognised; None outside a tool
    call."""

    cancelled: Cancellation
    stream: Stream
    rooms: Rooms
    """The rooms of the run's tenant."""

    resources: Mapping[str, Any]
    """What the folder's `@lifespan` functions yielded, merged into one mapping for the whole worker process."""

    log: Log
