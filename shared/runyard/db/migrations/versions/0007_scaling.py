"""Priority classes, and the indexes that limits of running runs are counted and kept by.

Indexes that are there already are left: on a large database they can be made beforehand, CONCURRENTLY.

Revision ID: 0007
Revises: 0006
"""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

QUEUED = sa.text("status = 'queued'")
RUNNING = sa.text("status = 'running'")


def upgrade() -> None:
    # With a default: processes of the version before go on to insert runs without naming it.
    op.add_column("agent_runs", sa.Column("priority", sa.Text(), nullable=False, server_default="interactive"))
    _index("ix_agent_runs_user_claim", ["queue", "agent", "tenant_id", "user_id", "rank", "id"], QUEUED)
    _index("ix_agent_runs_running", ["tenant_id", "user_id", "agent"], RUNNING)
    # The new one serves whatever it served.
    op.drop_index("ix_agent_runs_running_tenant", table_name="agent_runs")


def downgrade() -> None:
    _index("ix_agent_runs_running_tenant", ["tenant_id"], RUNNING)
    for name in ("running", "user_claim"):
        op.drop_index(f"ix_agent_runs_{name}", table_name="agent_runs")
    op.drop_column("agent_runs", "priority")


def _index(name: str, columns: list[str], where: sa.TextClause) -> None:
    op.create_index(name, "agent_runs", columns, postgresql_where=where, sqlite_where=where, if_not_exists=True)
