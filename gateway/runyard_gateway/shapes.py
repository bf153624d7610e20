"""What answers contain, as the OpenAPI document shows it; `views.py` fills these shapes.

Clients must accept fields that are not named here: a later version may send more.
"""

from typing import Annotated, Any, Generic, Literal, NotRequired, TypeVar

from pydantic import ConfigDict, Field, with_config
from typing_extensions import TypedDict

from runyard.blocks import Content
from runyard.priorities import Priority
from runyard.runs import CallState, RunStatus
from runyard_gateway.standings import WaitReason

_described = with_config(ConfigDict(use_attribute_docstrings=True))

Item = TypeVar("Item")


@_described
class Page(TypedDict, Generic[Item]):
    items: list[Item]
    nextCursor: str | None
    """The `cursor` of the next page; null: this is the last one."""


class Items(TypedDict, Generic[Item]):
    items: list[Item]


@_described
class Cost(TypedDict):
    amount: float
    currency: str
    unpriced: bool
    """A part of it has no known price and counts as 0."""


class Failure(TypedDict):
    """Why a run failed."""

    code: str
    message: str


@with_config(ConfigDict(extra="allow"))
class StoredFailure(Failure):
    """Why an invocation failed. A function's refusal may have further fields."""

    retryable: bool


@_described
class Input(TypedDict):
    """Input that the transcript does not hold yet."""

    id: str
    text: str
    """The text of its text blocks."""
    at: str


class Retracted(Input):
    content: Content


class Retraction(TypedDict):
    runId: str
    retracted: Retracted


@_described
class Run(TypedDict):
    """A durable conversation of one user with one agent. Times are in UTC, ISO 8601."""

    id: str
    tenantId: str
    userId: str
    agent: str
    agentVersion: str | None
    sessionId: str | None
    title: str | None
    metadata: dict[str, Any]
    status: RunStatus
    priority: Priority
    """The class of its newest call."""
    position: int | None
    """The place of a queued run among those of the same queue, agent and tenant: 1 for the next, null beyond the
    hundredth. Like `waitReason` it is only told when a single run is read, and null in lists."""
    waitReason: WaitReason | None
    """What has to change before the run can have its turn."""
    error: Failure | None
    streamId: str | None
    """The stream of the newest invocation."""
    invocationId: str | None
    pendingInput: list[Input]
    """Only told when a single run is read; empty in lists."""
    cancelRequested: bool
    context: dict[str, Any] | None
    steps: int
    messageCount: int
    pendingCalls: list[dict[str, Any]]
    parentRunId: str | None
    usage: dict[str, int]
    cost: Cost
    createdAt: str
    lastActivityAt: str


@_described
class Message(TypedDict):
    """A row of the transcript."""

    runId: str
    seq: int
    role: Annotated[str, Field(json_schema_extra={"enum": ["user", "assistant"]})]
    content: Content
    """A string for plain text of the user, else content blocks of the Messages API."""
    createdAt: str
    invocationId: str | None
    model: str | None
    usage: dict[str, int] | None
    stopReason: str | None


@_described
class Accepted(TypedDict):
    """A call that was accepted: where to find out what becomes of it."""

    runId: str
    sessionId: str | None
    invocationId: str
    streamId: str
    status: RunStatus
    queued: NotRequired[int]
    """For input that steers the invocation in progress: how many inputs now wait."""
    inputId: NotRequired[str]


@_described
class Attempt(TypedDict):
    model: str
    code: str
    message: str
    status: NotRequired[int]
    """The provider's HTTP status."""
    type: NotRequired[str | None]


class Unanswered(TypedDict):
    id: str
    text: str


@_described
class _Outcome(TypedDict):
    steps: NotRequired[int]
    usage: NotRequired[dict[str, int]]
    cost: NotRequired[Cost]
    text: NotRequired[str]
    """The last answer."""
    model: NotRequired[str | None]
    finishReason: NotRequired[str]
    cancelled: NotRequired[bool]
    output: NotRequired[Any]
    """The value that a function returned."""
    unanswered: NotRequired[list[Unanswered]]
    """Input that a failure left in the queue: the next turn begins with it."""
    errors: NotRequired[list[Attempt]]
    """The attempts behind `FALLBACK_EXHAUSTED`."""
    error: NotRequired[StoredFailure]


class Result(Accepted, _Outcome):
    """How an invocation ended; until it has, what is known so far."""


@_described
class Invocation(Result):
    """One call on a run, from its input to the end of its stream."""

    createdAt: str
    startedAt: str | None
    settledAt: str | None


class StepCall(TypedDict):
    id: str
    name: str
    state: CallState
    isError: bool | None
    durationMs: int | None


class Step(TypedDict):
    """A model call and the tools that it called."""

    seq: int
    model: str | None
    usage: dict[str, int] | None
    calls: list[StepCall]
    finishReason: str | None
    durationMs: int | None


class InvocationWithSteps(Invocation):
    stepRecords: list[Step]


@_described
class Cancellation(_Outcome):
    """What a cancel found and did, with what is known of the invocation that it was for."""

    runId: str
    invocationId: str | None
    status: RunStatus
    sessionId: NotRequired[str | None]
    streamId: NotRequired[str]
    cancelRequested: bool
    """It was asked to stop and has not stopped yet."""
    dropped: list[Input]
    """Input that was waiting for the next turn."""


class Tool(TypedDict):
    name: str
    description: str
    inputSchema: dict[str, Any]
    idempotent: bool
    exclusive: bool
    timeoutS: float


class AgentVersion(TypedDict):
    version: str
    firstSeen: str
    lastSeen: str
    liveWorkers: int


@_described
class Agent(TypedDict):
    """An agent that the caller may call, in the newest version that a living worker has."""

    name: str
    auth: Literal["user", "admin"]
    queue: str
    priority: Priority
    """The class of calls that name none."""
    maxRunning: int | None
    """How many of its runs may run at once; null: any number."""
    model: str | None
    """null: the installation's default."""
    maxSteps: int
    maxTokens: int
    timeoutS: float
    rooms: list[str]
    """Rooms that the caller may join."""
    tools: list[Tool]
    version: str
    versions: list[AgentVersion]
    liveWorkers: int


@_described
class Member(TypedDict):
    """A user who is in the room, on one device or several."""

    userId: str


@_described
class Ticket(TypedDict):
    ticket: str
    """The value of the query parameter `ticket`; it works once."""
    expiresAt: str


@_described
class StreamTicket(Ticket):
    streamId: str


class Status(TypedDict):
    status: str


@_described
class QueuedClass(TypedDict):
    """The queued runs of one priority class."""

    priority: Priority
    queued: int
    oldestQueuedMs: int | None


class UnservedAgent(TypedDict):
    agent: str
    queued: int


@_described
class Queue(TypedDict):
    """How deep a queue is; docs/brokers.md explains each number."""

    queue: str
    ready: int | None
    """Messages that nobody has fetched. This and the next two are null while the broker does not answer."""
    delayed: int | None
    dead: int | None
    queued: int
    running: int
    waiting: int
    oldestQueuedMs: int | None
    """How long the queued run that waits longest has waited."""
    workers: int
    """Living workers, including those that are leaving."""
    draining: int
    slots: int
    """The slots of workers that are not leaving."""
    priorities: list[QueuedClass]
    """The queued runs by class, in the order in which classes go first."""
    unservedAgents: list[UnservedAgent]
    """Agents with queued runs that no living worker of this queue has."""


@_described
class Queues(Page[Queue]):
    brokerError: str | None
    """Why the broker does not say how many messages it holds."""
    at: str
