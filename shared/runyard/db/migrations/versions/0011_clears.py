"""How often a run's transcript was cleared: its rows are numbered from 1 again, and its calls' keys must not repeat.

Revision ID: 0011
Revises: 0010
"""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("agent_runs", sa.Column("clears", sa.Integer, nullable=False, server_default="0"))


def downgrade() -> None:
    op.drop_column("agent_runs", "clears")
