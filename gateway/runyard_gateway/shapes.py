"""What answers hold, as the OpenAPI document shows it: the shapes of `views.py`, which fills them.

Clients have to take fields that are not named here: a later version may send more.
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
    """`cursor` of the next page; null: this is the last one."""


class Items(TypedDict, Generic[Item]):
    items: list[Item]


@_described
class Cost(TypedDict):
    amount: float
    currency: str
    unpriced: bool
    """A part of it has no known price, and counts as 0."""


class Failure(TypedDict):
    """Why a run failed."""

    code: str
    message: str


@with_config(ConfigDict(extra="allow"))
class StoredFailure(Failure):
    """What a function's own refusal says beside is in further fields."""

    retryable: bool


@_described
class Input(TypedDict):
    """Input that the transcript does not hold yet."""

    id: str
    text: str
    """Its text blocks."""
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
    """The class of its newest call, where it waits."""
    position: int | None
    """Of a queued run among those of the same queue, agent and tenant, 1 for the next; null from the hundredth on. Told
    of one run alone, like the next; null in lists."""
    waitReason: WaitReason | None
    """What has to change before its turn can come."""
    error: Failure | None
    streamId: str | None
    """The newest invocation's stream."""
    invocationId: str | None
    pendingInput: list[Input]
    """Told of one run alone; empty in lists."""
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
    """A string for plain text of the user, else blocks as the Messages API has them."""
    createdAt: str
    invocationId: str | None
    model: str | None
    usage: dict[str, int] | None
    stopReason: str | None


@_described
class Accepted(TypedDict):
    """A call that was accepted: where to look for what becomes of it."""

    runId: str
    sessionId: str | None
    invocationId: str
    streamId: str
    status: RunStatus
    queued: NotRequired[int]
    """Of input that steers the invocation in progress: how many inputs wait, with it."""
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
    """The last answer's."""
    model: NotRequired[str | None]
    finishReason: NotRequired[str]
    cancelled: NotRequired[bool]
    output: NotRequired[Any]
    """The value of a function."""
    unanswered: NotRequired[list[Unanswered]]
    """Input that a failure left in the queue: the next turn begins with it."""
    errors: NotRequired[list[Attempt]]
    """Each attempt of `FALLBACK_EXHAUSTED`."""
    error: NotRequired[StoredFailure]


class Result(Accepted, _Outcome):
    """How an invocation ended; before it has, what is known."""


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
    """A model call and the tools that it asked for."""

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
    """What a cancel found and did: what is known of the invocation that it was for."""

    runId: str
    invocationId: str | None
    status: RunStatus
    sessionId: NotRequired[str | None]
    streamId: NotRequired[str]
    cancelRequested: bool
    """It is asked to stop and has not yet."""
    dropped: list[Input]
    """Input that waited for the next turn."""


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
    """Of calls that name none."""
    maxRunning: int | None
    """How many of its runs may run at once; null: any number."""
    model: str | None
    """null: the one that the installation names."""
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
    """`ticket` of the query, once."""
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
    """How deep a queue is; docs/brokers.md says what each number counts."""

    queue: str
    ready: int | None
    """Messages that nobody has fetched; null, like the next two: the broker does not tell."""
    delayed: int | None
    dead: int | None
    queued: int
    running: int
    waiting: int
    oldestQueuedMs: int | None
    """How long the queued run has waited that has waited longest."""
    workers: int
    """Living ones, those that leave included."""
    draining: int
    slots: int
    """Of the workers that do not leave."""
    priorities: list[QueuedClass]
    """The queued ones by class, the first that goes first."""
    unservedAgents: list[UnservedAgent]
    """Agents with queued runs that no living worker of this queue has."""


@_described
class Queues(Page[Queue]):
    brokerError: str | None
    """Why the broker does not tell how many messages it holds."""
    at: str
