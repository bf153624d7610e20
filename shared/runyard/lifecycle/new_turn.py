"""The values of accepting a call: what the call asks for (`NewTurn`), and what became of it (`Accepted`)."""

from dataclasses import dataclass, field
from typing import Any, Literal

from runyard.db.idempotency import CallKey
from runyard.db.scope import Scope
from runyard.history import HistoryMessage
from runyard.ids import InputId, InvocationId, RequestId, RunId, StreamId
from runyard.lifecycle.endings import Ending
from runyard.priorities import Priority
from runyard.runs import RunStatus


@dataclass(frozen=True, kw_only=True, slots=True)
class NewTurn:
    """A checked call: every store can hold what is in it.

    The gateway has made its ids, so that it can accept the same call again after a commit of unknown outcome.
    """

    tenant_id: str
    user_id: str
    """The owner of a new run, and of the session that `session_id` names."""

    scope: Scope
    """The runs that `continues` may name."""

    agent: str
    queue: str
    priority: Priority
    content: str | list[dict[str, Any]]
    roles: tuple[str, ...]
    run_id: RunId
    invocation_id: InvocationId
    input_id: InputId
    stream_id: StreamId
    request_id: RequestId
    at: int
    options: dict[str, Any] = field(default_factory=dict)
    continues: str | None = None
    if_busy: Literal["steer", "reject", "cancel"] = "steer"
    session_id: str | None = None
    title: str | None = None
    metadata: dict[str, Any] | None = None
    context: dict[str, Any] | None = None
    """Replaces the run's context, unless the input steers: an invocation keeps the context with which it began."""

    history: tuple[HistoryMessage, ...] | None = None
    """Messages from elsewhere, to be stored before `content`. Together they must be able to follow the transcript."""

    call_key: CallKey | None = None
    trace_context: dict[str, str] | None = None
    """The place of its request in a trace (`runyard.traces.carried`)."""

    @property
    def creates_run(self) -> bool:
        """Whether it creates a run whatever is stored: it names no run, session or earlier call, and has no history."""
        return self.continues is None and self.session_id is None and self.call_key is None and self.history is None


@dataclass(frozen=True, kw_only=True, slots=True)
class Accepted:
    """Where the input went: into a new invocation, or to an existing one that it steers.

    `status`: the invocation's. `queued`: of a call that steers, how many inputs then wait. `waits_for_end`: the new
    invocation begins once the current one, which was asked to stop, has ended. `repeated`: nothing was stored; this is
    the answer to an earlier call with the same key.
    """

    run_id: RunId
    invocation_id: InvocationId
    input_id: InputId
    stream_id: StreamId
    session_id: str | None
    status: RunStatus = RunStatus.QUEUED
    queued: int | None = None
    waits_for_end: bool = False
    repeated: bool = False
    ending: Ending | None = None
    """The end of a queued call that this one replaced. The caller of `accept_turn` must close its stream."""

    @property
    def is_steering(self) -> bool:
        return self.queued is not None
