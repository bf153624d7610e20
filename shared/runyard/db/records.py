"""Rows as values, as the transactions return them. Fields are named like the columns, which `tables.py` explains."""

from dataclasses import dataclass, field
from typing import Any

from runyard.ids import InvocationId, RunId, StreamId
from runyard.priorities import Priority
from runyard.runs import CallState, RunStatus


@dataclass(frozen=True, kw_only=True, slots=True)
class Run:
    id: RunId
    tenant_id: str
    user_id: str
    agent: str
    agent_version: str | None
    queue: str
    session_id: str | None
    title: str | None
    metadata: dict[str, Any]
    context: dict[str, Any] | None
    status: RunStatus
    worker_id: str | None
    generation: int
    rank: int
    invocation_id: InvocationId | None
    cancel_requested: bool
    error: dict[str, Any] | None
    steps: int
    last_seq: int
    usage: dict[str, int]
    cost: dict[str, Any]
    created_at: int
    last_activity_at: int
    requeued_at: int | None = None
    priority: Priority = Priority.INTERACTIVE
    clears: int = 0
    changed_xid: int = field(default=0, compare=False)
    """Set by the database (`runyard.db.marks`)."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "status", RunStatus(self.status))
        object.__setattr__(self, "priority", Priority.stored(self.priority))

    @property
    def newest_invocation(self) -> InvocationId:
        """The newest invocation of a run that has had one: every run except those that are idle or were cleared."""
        assert self.invocation_id is not None, f"run {self.id} has no invocation"
        return self.invocation_id


@dataclass(frozen=True, kw_only=True, slots=True)
class Invocation:
    id: InvocationId
    run_id: RunId
    stream_id: StreamId
    request_id: str
    status: RunStatus
    roles: list[str]
    options: dict[str, Any]
    steps: int
    usage: dict[str, int]
    cost: dict[str, Any]
    deaths: list[list[str]]
    redis_run_id: str | None
    frame_base: int | None
    result: dict[str, Any] | None
    error: dict[str, Any] | None
    last_frame: int | None
    last_seq: int | None
    stream_closed: bool
    created_at: int
    started_at: int | None
    settled_at: int | None
    calls_kept: bool = True
    closing_rows: int | None = None
    trace_context: dict[str, str] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "status", RunStatus(self.status))

    @property
    def rows_at_its_end(self) -> int:
        """How many rows its settlement appended, which the end of its stream announces."""
        return 1 if self.closing_rows is None else self.closing_rows


@dataclass(frozen=True, kw_only=True, slots=True)
class Message:
    run_id: RunId
    seq: int
    invocation_id: InvocationId | None
    role: str
    content: str | list[dict[str, Any]]
    model: str | None = None
    usage: dict[str, int] | None = None
    cost: dict[str, Any] | None = None
    stop_reason: str | None = None
    duration_ms: int | None = None
    first_frame: int | None = None
    last_frame: int | None = None
    created_at: int
    changed_xid: int = field(default=0, compare=False)
    """Set by the database (`runyard.db.marks`)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Input:
    id: str
    run_id: RunId
    invocation_id: InvocationId
    position: int
    opens: bool
    content: str | list[dict[str, Any]]
    folded_in_seq: int | None
    created_at: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Call:
    run_id: RunId
    assistant_seq: int
    index: int
    invocation_id: InvocationId
    call_id: str
    name: str
    idempotent: bool
    state: CallState
    content: str | list[dict[str, Any]] | None
    is_error: bool | None
    started_at: int | None
    finished_at: int | None

    def __post_init__(self) -> None:
        object.__setattr__(self, "state", CallState(self.state))
