"""What is deleted when it is old enough is found by its age; an invocation says whether its ledger is still there.

What is there already is left: on a large database it can be made beforehand, the indexes CONCURRENTLY.

Revision ID: 0008
Revises: 0007
"""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

AT_REST = sa.text("status IN ('cancelled', 'completed', 'failed', 'idle')")


def upgrade() -> None:
    # With a default: the version before goes on to insert without naming it.
    op.add_column(
        "agent_invocations",
        sa.Column("calls_kept", sa.Boolean(), nullable=False, server_default=sa.true()),
        if_not_exists=op.get_bind().dialect.name == "postgresql" or None,  # SQLite cannot say it
    )
    op.create_index(
        "ix_agent_invocations_calls",
        "agent_invocations",
        ["settled_at"],
        postgresql_where=sa.text("settled_at IS NOT NULL AND calls_kept"),
        sqlite_where=sa.text("settled_at IS NOT NULL AND calls_kept = 1"),
        if_not_exists=True,
    )
    op.create_index(
        "ix_agent_runs_at_rest",
        "agent_runs",
        ["last_activity_at"],
        postgresql_where=AT_REST,
        sqlite_where=AT_REST,
        if_not_exists=True,
    )
    op.create_index("ix_idempotency_keys_created", "idempotency_keys", ["created_at"], if_not_exists=True)


def downgrade() -> None:
    op.drop_index("ix_idempotency_keys_created", table_name="idempotency_keys")
    op.drop_index("ix_agent_runs_at_rest", table_name="agent_runs")
    op.drop_index("ix_agent_invocations_calls", table_name="agent_invocations")
    op.drop_column("agent_invocations", "calls_kept")
