"""What a depth that is true needs to know: which workers leave, and since when a run that was given back waits.

Revision ID: 0006
Revises: 0005
"""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

WAITING = sa.text("status = 'waiting'")


def upgrade() -> None:
    # With a default: workers of the version before go on to register without naming it.
    op.add_column("workers", sa.Column("draining", sa.Boolean(), nullable=False, server_default=sa.false()))
    op.add_column("agent_runs", sa.Column("requeued_at", sa.BigInteger(), nullable=True))
    op.create_index(
        "ix_agent_runs_waiting",
        "agent_runs",
        ["queue", "agent", "tenant_id"],
        postgresql_where=WAITING,
        sqlite_where=WAITING,
    )


def downgrade() -> None:
    op.drop_index("ix_agent_runs_waiting", table_name="agent_runs")
    op.drop_column("agent_runs", "requeued_at")
    op.drop_column("workers", "draining")
