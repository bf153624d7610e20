"""`RunContext`: what a tool and a system prompt function are given beside the model's arguments."""

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
    """Whose run it is: an agent's name; `fn:<name>` where a function was called by itself."""

    user_id: str
    tenant_id: str
    """Who owns the run, whoever made this call on it. The user is "" where a public function was called without a
    token."""

    roles: frozenset[str]
    """Of the caller. `admin` may be there while the run is another user's."""

    metadata: Mapping[str, Any]
    """What the caller attached to the run."""

    context: Mapping[str, Any] | None
    """What a service said that tools should know of this run: clients can neither set nor change it. None: nothing."""

    call_id: str | None
    """The model's id of this tool call; None outside of one."""

    idempotency_key: str | None
    """The same for every execution of one tool call, so that a repeated one can be recognised; None outside of one."""

    cancelled: Cancellation
    stream: Stream
    rooms: Rooms
    """Of the run's tenant."""

    resources: Mapping[str, Any]
    """What the folder's `@lifespan` functions yielded, merged; one set for the whole worker process."""

    log: Log
