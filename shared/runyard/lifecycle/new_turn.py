"""What a call asks of a run, and what became of it: the words of accepting."""

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
    """A checked call: nothing in it is what no store would hold.

    Its ids are made by whoever accepts it, so that after a commit of unknown outcome it can be accepted again.
    """

    tenant_id: str
    user_id: str
    """Whom the run belongs to that it creates, and whose session it names."""

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
    """Replaces the run's, unless this is input that steers: what runs has begun with the one that it has."""

    history: tuple[HistoryMessage, ...] | None = None
    """What was said elsewhere before `content`; with it the two are checked to fit behind the transcript."""

    call_key: CallKey | None = None
    trace_context: dict[str, str] | None = None
    """Of the request that brings it (`runyard.traces.carried`)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Accepted:
    """Where the input went: into a new invocation, or to one that is there (`queued`: how many inputs steer it so).

    `status`: of that invocation. `waits_for_end`: it is next when what runs, and is asked to stop, has ended.
    `repeated`: nothing was stored; this is what became of an earlier call with the same key.
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
    """Of the stream of a queued call that this one replaced: whoever accepts owes it."""

    @property
    def is_steering(self) -> bool:
        return self.queued is not None
