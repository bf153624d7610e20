"""How many rows a settlement appended: those that the end of a stream tells of.

Revision ID: 0010
Revises: 0009
"""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("agent_invocations", sa.Column("closing_rows", sa.Integer, nullable=True))


def downgrade() -> None:
    op.drop_column("agent_invocations", "closing_rows")
