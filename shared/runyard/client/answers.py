"""A gateway's answers as objects: fields in snake_case, times as `datetime`.

Fields that this version does not know are kept in `model_extra`, under their names on the wire; `to_json` returns them
too.
"""

from datetime import datetime
from typing import Any

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from runyard.client.failures import failure_from_body
from runyard.runs import BUSY


class Answer(BaseModel):
    model_config = ConfigDict(
        frozen=True, extra="allow", alias_generator=to_camel, populate_by_name=True, protected_namespaces=()
    )

    def to_json(self) -> dict[str, Any]:
        """What was received, `{"runId": "run_...", ...}`; fields that were not sent are left out."""
        return self.model_dump(mode="json", by_alias=True, exclude_unset=True)


class Cost(Answer):
    amount: float
    currency: str
    unpriced: bool = False
    """A part of it has no known price and counts as 0."""


class Failure(Answer):
    """Why an invocation failed. Further fields of a function's refusal are in `model_extra`."""

    code: str
    message: str
    retryable: bool = False


class Input(Answer):
    """Input that the transcript does not hold (yet): its id and its text."""

    id: str
    text: str = ""


class Accepted(Answer):
    """A call that was accepted: where to look for what becomes of it.

    `{"runId": "run_...", "sessionId": null, "invocationId": "inv_...", "streamId": "st_...", "status": "queued"}`; of
    input that steers also `queued` and `inputId`.
    """

    run_id: str = ""
    session_id: str | None = None
    invocation_id: str = ""
    stream_id: str = ""
    status: str
    queued: int | None = None
    """For input that steers the invocation in progress: how many inputs now wait. None: the input began a turn."""
    input_id: str | None = None

    @property
    def is_busy(self) -> bool:
        """Whether it waits for a worker or is running."""
        return self.status in BUSY


class _Outcome(Answer):
    text: str = ""
    """The last answer; the `text` of a stream has everything that the invocation said."""
    output: Any = None
    """The value that a function returned."""
    error: Failure | None = None
    steps: int = 0
    usage: dict[str, int] = Field(default_factory=dict)
    cost: Cost | None = None
    model: str | None = None
    finish_reason: str | None = None
    cancelled: bool = False
    errors: list[dict[str, Any]] = Field(default_factory=list)
    """The attempts behind `FALLBACK_EXHAUSTED`."""
    unanswered: list[Input] = Field(default_factory=list)
    """Input that a failure left unread: the next turn begins with it."""


class Result(Accepted, _Outcome):
    """How an invocation ended (`status` is `completed`, `failed` or `cancelled`); before it has, what is known.

    `Accepted`, and `{"text": "...", "steps": 2, "usage": {"input_tokens": 10, ...}, "cost": {...}, "model": "...",
    "finishReason": "end_turn"}`; of a failure `error`, of a function `output`.
    """

    def raise_for_failure(self) -> None:
        """Raise the error that the invocation failed with, as the exception of its code (`runyard.errors`), if it
        failed.
        """
        if self.error is not None:
            raise failure_from_body(self.error.to_json() | {"runId": self.run_id, "invocationId": self.invocation_id})


class StepCall(Answer):
    id: str
    name: str
    state: str
    is_error: bool | None = None
    duration_ms: int | None = None


class Step(Answer):
    """A model call and the tools that it called."""

    seq: int
    model: str | None = None
    usage: dict[str, int] | None = None
    calls: list[StepCall] = Field(default_factory=list)
    finish_reason: str | None = None
    duration_ms: int | None = None


class Invocation(Result):
    """One call on a run, step by step."""

    created_at: datetime | None = None
    started_at: datetime | None = None
    settled_at: datetime | None = None
    step_records: list[Step] = Field(default_factory=list)


class Cancellation(_Outcome):
    """What a cancel found and did, with what is known of the invocation that it was for.

    `{"runId": "run_...", "invocationId": "inv_...", "status": "cancelled", "cancelled": true, "cancelRequested": false,
    "dropped": [{"id": "in_...", "text": "...", "at": "..."}], ...}`
    """

    run_id: str
    invocation_id: str | None = None
    """None: the run has had none."""
    status: str
    session_id: str | None = None
    stream_id: str | None = None
    cancel_requested: bool = False
    """It has been asked to stop and has not stopped yet."""
    dropped: list[Input] = Field(default_factory=list)
    """Input that was waiting for the next turn."""


class Run(Answer):
    """A durable conversation of one user with one agent."""

    id: str
    agent: str
    status: str
    tenant_id: str | None = None
    user_id: str | None = None
    agent_version: str | None = None
    session_id: str | None = None
    title: str | None = None
    metadata: dict[str, Any] = Field(default_factory=dict)
    priority: str | None = None
    position: int | None = None
    """A queued run's place, 1 for the next; only known when a single run was fetched, as is `wait_reason`."""
    wait_reason: str | None = None
    """Why its turn cannot come: `no_worker`, `agent_limit`, `tenant_limit`, `user_limit`."""
    error: Failure | None = None
    stream_id: str | None = None
    """The stream of the newest invocation."""
    invocation_id: str | None = None
    pending_input: list[Input] = Field(default_factory=list)
    """Only known when a single run was fetched; empty in lists."""
    cancel_requested: bool = False
    context: dict[str, Any] | None = None
    steps: int = 0
    message_count: int = 0
    usage: dict[str, int] = Field(default_factory=dict)
    cost: Cost | None = None
    created_at: datetime | None = None
    last_activity_at: datetime | None = None


class Message(Answer):
    """A row of the transcript: `{"runId": "run_...", "seq": 2, "role": "assistant", "content": [{...}], ...}`."""

    run_id: str
    seq: int
    role: str
    content: str | list[dict[str, Any]]
    """A string for plain text of the user, else content blocks of the Messages API."""
    created_at: datetime | None = None
    invocation_id: str | None = None
    model: str | None = None
    usage: dict[str, int] | None = None
    stop_reason: str | None = None

    @property
    def text(self) -> str:
        """The concatenated text blocks."""
        if isinstance(self.content, str):
            return self.content
        return "".join(block.get("text", "") for block in self.content if block.get("type") == "text")


class Tool(Answer):
    name: str
    description: str = ""
    input_schema: dict[str, Any] = Field(default_factory=dict)


class Agent(Answer):
    """An agent that the caller may call, in the newest version that a living worker has."""

    name: str
    queue: str = ""
    model: str | None = None
    """None: the installation's default."""
    tools: list[Tool] = Field(default_factory=list)
    version: str = ""
    live_workers: int = 0
