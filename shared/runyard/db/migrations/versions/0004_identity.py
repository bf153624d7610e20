"""Service keys, the context that a service gives to a run, and the list of a tenant's runs.

Revision ID: 0004
Revises: 0003
"""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "service_keys",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("hash", sa.Text(), nullable=False),
        sa.Column("last_four", sa.Text(), nullable=False),
        sa.Column("tenants", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("revoked_at", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_service_keys")),
        sa.UniqueConstraint("hash", name=op.f("uq_service_keys_hash")),
    )
    op.add_column("agent_runs", sa.Column("context", sa.JSON(none_as_null=True), nullable=True))
    op.create_index("ix_agent_runs_tenant", "agent_runs", ["tenant_id", "last_activity_at", "id"])


def downgrade() -> None:
    op.drop_index("ix_agent_runs_tenant", table_name="agent_runs")
    op.drop_column("agent_runs", "context")
    op.drop_table("service_keys")
