"""Every metric, once: its name, its labels and its meaning; and the port on which a process shows them.

Labels are bounded by what is deployed: agents, queues, models, codes. They never hold users, tenants or ids.
`docs/metrics.md` has the same table; a test keeps the two equal.

A process counts whether or not anybody reads: `serve` only opens the port. Gauges of a process's parts are read when
they are asked for (`set_function`).
"""

import errno

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, start_http_server

from runyard.errors import StartError

REGISTRY = CollectorRegistry()
PROCESS = ProcessCollector(registry=REGISTRY)
"""`process_*`: processor time, memory, open files; on Linux only."""

SECONDS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)
"""Buckets for models and tools: from what a person does not notice to what they would give up on."""

# Gateways -------------------------------------------------------------------------------------------------------------

ACCEPTED = Counter(
    "runyard_calls_accepted", "Calls that were committed, steering included", ["agent"], registry=REGISTRY
)
FAILURES = Counter("runyard_http_failures", "Requests answered with an error, by its code", ["code"], registry=REGISTRY)
OPEN_STREAMS = Gauge("runyard_open_streams", "Answers that stream frames now", registry=REGISTRY)
RESUMES = Counter("runyard_stream_resumes", "Streams that a reader resumed from a cursor", registry=REGISTRY)

# Workers --------------------------------------------------------------------------------------------------------------

SLOTS = Gauge("runyard_slots", "Slots of the worker", registry=REGISTRY)
SLOTS_TAKEN = Gauge("runyard_slots_taken", "Slots in use", registry=REGISTRY)
FIRST_TOKEN_SECONDS = Histogram(
    "runyard_first_token_seconds",
    "From the claim of a call to the first text or thinking of its model; not of calls that were taken over",
    ["agent"],
    buckets=SECONDS,
    registry=REGISTRY,
)
STEP_SECONDS = Histogram(
    "runyard_step_seconds", "A model's whole turn", ["agent", "model"], buckets=SECONDS, registry=REGISTRY
)
TOOL_SECONDS = Histogram(
    "runyard_tool_seconds", "A tool call that ran, however it ended", ["agent"], buckets=SECONDS, registry=REGISTRY
)
TOOL_THREADS_BUSY = Gauge(
    "runyard_tool_threads_busy",
    "Threads that run a sync tool; there are as many as slots, and further calls wait for one",
    registry=REGISTRY,
)
TOOL_ERRORS = Counter(
    "runyard_tool_errors", "Tool calls that ran and whose result is an error", ["agent"], registry=REGISTRY
)
TOKENS = Counter(
    "runyard_tokens",
    "Tokens of model calls, failed ones included; kind as in usage, without output_tokens_estimated",
    ["model", "kind"],
    registry=REGISTRY,
)
COST = Counter("runyard_cost_usd", "What model calls with a known price have cost", ["model"], registry=REGISTRY)
SETTLED = Counter(
    "runyard_invocations_settled",
    "Invocations that a worker settled; code is empty for those that did not fail",
    ["agent", "status", "code"],
    registry=REGISTRY,
)
CANCEL_SECONDS = Histogram(
    "runyard_cancel_seconds",
    "From when the worker learned of a cancel to the settlement",
    buckets=SECONDS,
    registry=REGISTRY,
)
DEATHS = Counter("runyard_worker_deaths", "Workers that this one found dead and buried", registry=REGISTRY)
TAKEOVERS = Counter("runyard_takeovers", "Claims of invocations that had begun before", ["agent"], registry=REGISTRY)
HANDOVERS = Counter(
    "runyard_handovers", "Runs that the worker gave back to the queue, for another worker", registry=REGISTRY
)
YIELDS = Counter(
    "runyard_yields",
    "Of those, the runs over their tenant's share of a full worker that made way for another tenant",
    registry=REGISTRY,
)
LOST = Counter("runyard_runs_lost", "Runs dropped because they belong to another worker", registry=REGISTRY)
MODEL_ERRORS = Counter("runyard_model_errors", "Model calls that failed", ["model", "code"], registry=REGISTRY)
MODEL_RETRIES = Counter(
    "runyard_model_retries",
    "Model calls that follow a failed one, on the model that is asked next",
    ["model"],
    registry=REGISTRY,
)
FRAMES = Counter(
    "runyard_frames", "Frames sent to Redis, without those that reset a stream as it is closed", registry=REGISTRY
)
FRAME_BYTES = Counter("runyard_frame_bytes", "The size of their payloads", registry=REGISTRY)
REWINDS = Counter("runyard_stream_rewinds", "Times that shown text was withdrawn", registry=REGISTRY)
RESETS = Counter("runyard_stream_resets", "Streams reset because frames were lost, or may have been", registry=REGISTRY)
LATE_CLOSES = Counter(
    "runyard_late_closes",
    "Streams of settled invocations that a sweep closed, since nobody else had",
    registry=REGISTRY,
)
FORGOTTEN = Counter("runyard_rows_forgotten", "Rows deleted because of their age, by kind", ["kind"], registry=REGISTRY)

# Both -----------------------------------------------------------------------------------------------------------------

LINKS = Gauge("runyard_database_links", "How many links to the database the process's pool may open", registry=REGISTRY)
LINKS_IN_USE = Gauge("runyard_database_links_in_use", "Of these, those that are in use", registry=REGISTRY)
REDIS_AWAY = Gauge(
    "runyard_redis_away",
    "1: the process does not reach the Redis of the frames, or is refused by it",
    registry=REGISTRY,
)
WAKE_UPS_UNSENT = Counter(
    "runyard_wake_ups_unsent", "Wake-ups that the broker did not take: a run waits up to 2 s", registry=REGISTRY
)

# Of the whole system, told by each gateway alike: `depth_samples` in the gateway makes them of one look.
DEPTH = {
    "runyard_queue_runs": ("Runs by their rows", ("queue", "status")),
    "runyard_queue_messages": ("Messages in the broker; absent while it does not answer", ("queue", "state")),
    "runyard_queue_oldest_seconds": (
        "How long the oldest queued run of a priority class has waited; 0: none is queued",
        ("queue", "priority"),
    ),
    "runyard_queue_claimable_oldest_seconds": (
        "The same among those that no limit holds back (of an agent, a tenant, a user): a free slot would take them",
        ("queue", "priority"),
    ),
    "runyard_queue_queued": ("Queued runs by priority class", ("queue", "priority")),
    "runyard_queue_workers": ("Living workers, including those that are leaving", ("queue",)),
    "runyard_queue_draining": ("Workers that are leaving", ("queue",)),
    "runyard_queue_slots": ("Slots of workers that are not leaving", ("queue",)),
    "runyard_queue_unserved": ("Queued runs of an agent that no living worker of the queue has", ("queue", "agent")),
    "runyard_depth_known": ("1: the depth is known; 0: the database does not answer", ()),
}


def serve(host: str, port: int | None) -> None:
    """Show the metrics at `/metrics`, from a thread of its own; `port` None: nowhere.

    Raises:
        StartError: the port is taken, or the address does not belong to this machine.
    """
    if port is None:
        return
    try:
        start_http_server(port, addr=host, registry=REGISTRY)
    except OSError as error:
        reason = "is in use" if error.errno == errno.EADDRINUSE else f"cannot be listened on: {error.strerror}"
        raise StartError(f"port {port} on {host} {reason} (RUNYARD_METRICS_PORT)") from None
