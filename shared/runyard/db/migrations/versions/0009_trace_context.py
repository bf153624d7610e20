"""The place of a call in its trace, for the worker that executes it.

Revision ID: 0009
Revises: 0008
"""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("agent_invocations", sa.Column("trace_context", sa.JSON(none_as_null=True), nullable=True))


def downgrade() -> None:
    op.drop_column("agent_invocations", "trace_context")
