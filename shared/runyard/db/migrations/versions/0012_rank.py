"""The lowest ranks of a queue's agents, whichever tenants they are of: a claim looks at them first.

Revision ID: 0012
Revises: 0011
"""

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    queued = sa.text("status = 'queued'")
    op.create_index(
        "ix_agent_runs_rank",
        "agent_runs",
        ["queue", "agent", "rank", "id"],
        postgresql_where=queued,
        sqlite_where=queued,
        if_not_exists=True,
    )


def downgrade() -> None:
    op.drop_index("ix_agent_runs_rank", table_name="agent_runs")
