"""Every table, column and index. A column is here only when something writes it.

Times are BIGINT epoch milliseconds. JSON is kept as text (`json`, not `jsonb`): a model's turn must come back with its
keys in the order they were produced, since providers compare signed blocks byte by byte.
"""

from collections.abc import Iterable

import sqlalchemy as sa

from runyard import runs
from runyard.db.marks import marked
from runyard.priorities import Priority
from runyard.runs import CallState, RunStatus

metadata = sa.MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)

Json = sa.JSON(none_as_null=True)

QUEUED = sa.literal_column(f"'{RunStatus.QUEUED}'", sa.Text)
RUNNING = sa.literal_column(f"'{RunStatus.RUNNING}'", sa.Text)
WAITING = sa.literal_column(f"'{RunStatus.WAITING}'", sa.Text)
"""A status as part of the statement. Partial indexes serve only statements that state their condition: behind a
parameter, a prepared statement's generic plan (Postgres makes one after five executions) reads the whole table."""


def _one_of(column: str, values: Iterable[RunStatus] | Iterable[CallState]) -> str:
    return f"{column} IN ({', '.join(repr(str(value)) for value in values)})"


AT_REST = sa.text(_one_of("status", sorted(runs.AT_REST)))
"""Matches runs that nobody works on, and nobody will without another call."""


workers = sa.Table(
    "workers",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("beat", sa.BigInteger, nullable=False),
    sa.Column("host", sa.Text, nullable=False),
    sa.Column("slots", sa.Integer, nullable=False),
    sa.Column("queues", Json, nullable=False),
    sa.Column("agents", Json, nullable=False),
    sa.Column("started_at", sa.BigInteger, nullable=False),
    sa.Column("draining", sa.Boolean, nullable=False, server_default=sa.false()),
)
"""A worker process. `agents`: `{"researcher": "<version>"}`. `beat` only ever rises. `draining`: it was told to leave
and takes no more runs."""

agent_manifests = sa.Table(
    "agent_manifests",
    metadata,
    sa.Column("agent", sa.Text, primary_key=True),
    sa.Column("version", sa.Text, primary_key=True),
    sa.Column("manifest", Json, nullable=False),
    sa.Column("first_seen", sa.BigInteger, nullable=False),
    sa.Column("last_seen", sa.BigInteger, nullable=False),
)

agent_runs = sa.Table(
    "agent_runs",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("tenant_id", sa.Text, nullable=False),
    sa.Column("user_id", sa.Text, nullable=False),
    sa.Column("agent", sa.Text, nullable=False),
    sa.Column("agent_version", sa.Text),
    sa.Column("queue", sa.Text, nullable=False),
    sa.Column("session_id", sa.Text),
    sa.Column("title", sa.Text),
    sa.Column("metadata", Json, nullable=False),
    sa.Column("context", Json),
    sa.Column("status", sa.Text, nullable=False),
    sa.Column("worker_id", sa.Text, sa.ForeignKey("workers.id")),
    sa.Column("generation", sa.Integer, nullable=False),
    sa.Column("rank", sa.BigInteger, nullable=False),
    sa.Column("priority", sa.Text, nullable=False, server_default=Priority.INTERACTIVE),
    sa.Column("invocation_id", sa.Text),
    sa.Column("cancel_requested", sa.Boolean, nullable=False),
    sa.Column("error", Json),
    sa.Column("steps", sa.Integer, nullable=False),
    sa.Column("last_seq", sa.Integer, nullable=False),
    sa.Column("usage", Json, nullable=False),
    sa.Column("cost", Json, nullable=False),
    sa.Column("created_at", sa.BigInteger, nullable=False),
    sa.Column("last_activity_at", sa.BigInteger, nullable=False),
    sa.Column("requeued_at", sa.BigInteger),
    sa.Column("clears", sa.Integer, nullable=False, server_default="0"),
    marked(),
    sa.CheckConstraint(_one_of("status", RunStatus), name="status"),
    sa.CheckConstraint("worker_id IS NULL OR status = 'running'", name="worker"),
    # The claim: a loose scan over the groups (queue, agent, tenant), then the lowest rank of one group.
    sa.Index(
        "ix_agent_runs_claim",
        "queue",
        "agent",
        "tenant_id",
        "rank",
        "id",
        postgresql_where=sa.text("status = 'queued'"),
        sqlite_where=sa.text("status = 'queued'"),
    ),
    # Before that, the lowest ranks of all tenants.
    sa.Index(
        "ix_agent_runs_rank",
        "queue",
        "agent",
        "rank",
        "id",
        postgresql_where=sa.text("status = 'queued'"),
        sqlite_where=sa.text("status = 'queued'"),
    ),
    # The groups by user, past those who run as many as they may.
    sa.Index(
        "ix_agent_runs_user_claim",
        "queue",
        "agent",
        "tenant_id",
        "user_id",
        "rank",
        "id",
        postgresql_where=sa.text("status = 'queued'"),
        sqlite_where=sa.text("status = 'queued'"),
    ),
    # Also what the foreign key searches when a worker's row is deleted.
    sa.Index(
        "ix_agent_runs_worker",
        "worker_id",
        postgresql_where=sa.text("worker_id IS NOT NULL"),
        sqlite_where=sa.text("worker_id IS NOT NULL"),
    ),
    # How many runs of a tenant, of a user and of an agent run now. One index for all three: what runs is at most what
    # the workers have slots for, and of two a plan made while little runs may take the wrong one.
    sa.Index(
        "ix_agent_runs_running",
        "tenant_id",
        "user_id",
        "agent",
        postgresql_where=sa.text("status = 'running'"),
        sqlite_where=sa.text("status = 'running'"),
    ),
    # The depth of queues counts these; most runs of an old database are in none of the three partial indexes.
    sa.Index(
        "ix_agent_runs_waiting",
        "queue",
        "agent",
        "tenant_id",
        postgresql_where=sa.text("status = 'waiting'"),
        sqlite_where=sa.text("status = 'waiting'"),
    ),
    # What has been at rest for long enough is deleted (`runyard.db.retention`).
    sa.Index("ix_agent_runs_at_rest", "last_activity_at", postgresql_where=AT_REST, sqlite_where=AT_REST),
    sa.Index("ix_agent_runs_owner", "tenant_id", "user_id", "last_activity_at", "id"),
    sa.Index("ix_agent_runs_tenant", "tenant_id", "last_activity_at", "id"),
    sa.Index("ix_agent_runs_changed", "changed_xid"),
    sa.Index("uq_agent_runs_session", "tenant_id", "agent", "user_id", "session_id", unique=True),
)
"""A durable conversation of one user with one agent. `generation` is the fencing token of every write.

`context`: what a service told the run's tools; no other caller can set it. `invocation_id`: the newest; NULL as long as
nothing was asked, or after the transcript was cleared. `requeued_at`: when a worker last gave the run back, or died
with it. `clears`: how often its transcript was cleared, a part of its calls' idempotency keys. `priority` is that of
the newest call; `rank`, its place in the queue (`runyard.priorities`), stays the same when the run is given back."""

agent_invocations = sa.Table(
    "agent_invocations",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("run_id", sa.Text, sa.ForeignKey("agent_runs.id"), nullable=False),
    sa.Column("stream_id", sa.Text, nullable=False, unique=True),
    sa.Column("request_id", sa.Text, nullable=False),
    sa.Column("trace_context", Json),
    sa.Column("status", sa.Text, nullable=False),
    sa.Column("roles", Json, nullable=False),
    sa.Column("options", Json, nullable=False),
    sa.Column("steps", sa.Integer, nullable=False),
    sa.Column("usage", Json, nullable=False),
    sa.Column("cost", Json, nullable=False),
    sa.Column("deaths", Json, nullable=False),
    sa.Column("redis_run_id", sa.Text),
    sa.Column("frame_base", sa.BigInteger),
    sa.Column("result", Json),
    sa.Column("error", Json),
    sa.Column("last_frame", sa.BigInteger),
    sa.Column("last_seq", sa.Integer),
    sa.Column("closing_rows", sa.Integer),
    sa.Column("stream_closed", sa.Boolean, nullable=False),
    sa.Column("calls_kept", sa.Boolean, nullable=False, server_default=sa.true()),
    sa.Column("created_at", sa.BigInteger, nullable=False),
    sa.Column("started_at", sa.BigInteger),
    sa.Column("settled_at", sa.BigInteger),
    sa.CheckConstraint(_one_of("status", RunStatus), name="status"),
    sa.Index("ix_agent_invocations_run", "run_id", "created_at", "id"),
    sa.Index(
        "ix_agent_invocations_unclosed",
        "settled_at",
        postgresql_where=sa.text("settled_at IS NOT NULL AND NOT stream_closed"),
        sqlite_where=sa.text("settled_at IS NOT NULL AND stream_closed = 0"),  # as statements have it there
    ),
    sa.Index(
        "ix_agent_invocations_calls",
        "settled_at",
        postgresql_where=sa.text("settled_at IS NOT NULL AND calls_kept"),
        sqlite_where=sa.text("settled_at IS NOT NULL AND calls_kept = 1"),
    ),
)
"""One call on a run, from its input to its terminal frame.

`deaths`: for each worker that died with it, the tools whose calls had started and that have not come back since ([ADR
0010](docs/adr/0010-a-tool-that-comes-back-is-acquitted.md)). `redis_run_id`: the Redis process that held its first
frame; if it is another one now, frames are in doubt. `frame_base`: the number at which a reset stream begins. `result`
and `error`: what its terminal frame says. `last_frame`: the last frame before the closing ones; while the invocation is
not settled, the last one that a worker had sent when it handed the run over. `last_seq`: the transcript's last row when
it was settled. `closing_rows`: how many rows its settlement appended, which the end of its stream announces; NULL if
the version before settled it, which announced one. `calls_kept` false: its calls were old and are deleted from the
ledger. `trace_context`: the place of the call's request in its trace (`runyard.traces.Carrier`), NULL if nobody traces
it; it is on the row, since a worker may claim the run without its message."""

agent_messages = sa.Table(
    "agent_messages",
    metadata,
    sa.Column("run_id", sa.Text, sa.ForeignKey("agent_runs.id"), primary_key=True),
    sa.Column("seq", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("invocation_id", sa.Text),
    sa.Column("role", sa.Text, nullable=False),
    sa.Column("content", Json, nullable=False),
    sa.Column("model", sa.Text),
    sa.Column("usage", Json),
    sa.Column("cost", Json),
    sa.Column("stop_reason", sa.Text),
    sa.Column("duration_ms", sa.Integer),
    sa.Column("first_frame", sa.BigInteger),
    sa.Column("last_frame", sa.BigInteger),
    sa.Column("created_at", sa.BigInteger, nullable=False),
    marked(),
    sa.CheckConstraint("role IN ('user', 'assistant')", name="role"),
    sa.Index("ix_agent_messages_changed", "changed_xid"),
)
"""The transcript, stored exactly as produced. The columns from `model` to `last_frame` are for a model's turns only.

`invocation_id` is NULL for history that a caller brought along."""

agent_inputs = sa.Table(
    "agent_inputs",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("run_id", sa.Text, sa.ForeignKey("agent_runs.id"), nullable=False),
    sa.Column("invocation_id", sa.Text, nullable=False),
    sa.Column("position", sa.Integer, nullable=False),
    sa.Column("opens", sa.Boolean, nullable=False),
    sa.Column("content", Json, nullable=False),
    sa.Column("folded_in_seq", sa.Integer),
    sa.Column("created_at", sa.BigInteger, nullable=False),
    sa.UniqueConstraint("run_id", "position"),
    sa.Index(
        "ix_agent_inputs_unfolded",
        "run_id",
        "position",
        postgresql_where=sa.text("folded_in_seq IS NULL"),
        sqlite_where=sa.text("folded_in_seq IS NULL"),
    ),
)
"""What a caller sent. `opens`: the input began its invocation; otherwise it steers one.

`folded_in_seq` is set in the transaction that appends the row, so nothing is folded twice."""

agent_calls = sa.Table(
    "agent_calls",
    metadata,
    sa.Column("run_id", sa.Text, sa.ForeignKey("agent_runs.id"), primary_key=True),
    sa.Column("assistant_seq", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("index", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("invocation_id", sa.Text, nullable=False),
    sa.Column("call_id", sa.Text, nullable=False),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("idempotent", sa.Boolean, nullable=False),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("content", Json),
    sa.Column("is_error", sa.Boolean),
    sa.Column("started_at", sa.BigInteger),
    sa.Column("finished_at", sa.BigInteger),
    sa.CheckConstraint(_one_of("state", CallState), name="state"),
)
"""The ledger of tool calls: planned, started, finished, each committed before the next thing happens."""

idempotency_keys = sa.Table(
    "idempotency_keys",
    metadata,
    sa.Column("tenant_id", sa.Text, primary_key=True),
    sa.Column("user_id", sa.Text, primary_key=True),
    sa.Column("key", sa.Text, primary_key=True),
    sa.Column("request_hash", sa.Text, nullable=False),
    sa.Column("run_id", sa.Text, nullable=False),
    sa.Column("invocation_id", sa.Text, nullable=False),
    sa.Column("input_id", sa.Text, nullable=False),
    sa.Column("queued", sa.Integer),
    sa.Column("created_at", sa.BigInteger, nullable=False),
    sa.Index("ix_idempotency_keys_run", "run_id"),
    sa.Index("ix_idempotency_keys_created", "created_at"),
)
"""A caller's `Idempotency-Key` and the call that it stands for. No foreign key: it is taken before its run exists."""

agent_deletions = sa.Table(
    "agent_deletions",
    metadata,
    sa.Column("run_id", sa.Text, primary_key=True),
    sa.Column("tenant_id", sa.Text, nullable=False),
    sa.Column("user_id", sa.Text, nullable=False),
    sa.Column("whole_run", sa.Boolean, nullable=False),
    sa.Column("deleted_at", sa.BigInteger, nullable=False),
    marked(),
    sa.Index("ix_agent_deletions_changed", "changed_xid"),
    sa.Index("ix_agent_deletions_deleted", "deleted_at"),
)
"""What the feed says about rows that are gone: a run, or only its transcript (`whole_run` false)."""

service_keys = sa.Table(
    "service_keys",
    metadata,
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("hash", sa.Text, nullable=False, unique=True),
    sa.Column("last_four", sa.Text, nullable=False),
    sa.Column("tenants", Json, nullable=False),
    sa.Column("created_at", sa.BigInteger, nullable=False),
    sa.Column("revoked_at", sa.BigInteger),
)
"""Keys of programs that call for users. `hash`: SHA-256 of the key, in hex; the key itself is nowhere."""
