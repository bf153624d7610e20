"""What the feed is read from: the mark of the last change on runs and messages, and what was deleted.

Revision ID: 0005
Revises: 0004
"""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

TABLES = ("agent_runs", "agent_messages")


def upgrade() -> None:
    for table in TABLES:
        op.add_column(table, _mark())
        op.create_index(f"ix_{table}_changed", table, ["changed_xid"])
    op.create_table(
        "agent_deletions",
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("tenant_id", sa.Text(), nullable=False),
        sa.Column("user_id", sa.Text(), nullable=False),
        sa.Column("whole_run", sa.Boolean(), nullable=False),
        sa.Column("deleted_at", sa.BigInteger(), nullable=False),
        _mark(),
        sa.PrimaryKeyConstraint("run_id", name=op.f("pk_agent_deletions")),
    )
    op.create_index("ix_agent_deletions_changed", "agent_deletions", ["changed_xid"])
    op.create_index("ix_agent_deletions_deleted", "agent_deletions", ["deleted_at"])


def downgrade() -> None:
    op.drop_table("agent_deletions")
    for table in reversed(TABLES):
        op.drop_index(f"ix_{table}_changed", table_name=table)
        op.drop_column(table, "changed_xid")


def _mark() -> sa.Column[int]:
    return sa.Column("changed_xid", sa.BigInteger(), server_default="0", nullable=False)
