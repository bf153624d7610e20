"""Runs without an invocation, and messages that no invocation wrote.

Revision ID: 0003
Revises: 0002
"""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

TABLES = ("agent_runs", "agent_messages")


def upgrade() -> None:
    for table in TABLES:
        _change(table, "invocation_id", nullable=True)


def downgrade() -> None:
    op.execute("DELETE FROM agent_messages WHERE invocation_id IS NULL")
    op.execute("DELETE FROM agent_runs WHERE invocation_id IS NULL")
    for table in TABLES:
        _change(table, "invocation_id", nullable=False)


def _change(table: str, column: str, *, nullable: bool) -> None:
    if op.get_bind().dialect.name == "postgresql":
        op.alter_column(table, column, nullable=nullable)
        return
    # SQLite cannot change a column, and to rebuild the table its foreign keys would have to be switched off, which
    # nothing can do within a transaction. What takes the column's place stands last.
    added = sa.Column(f"new_{column}", sa.Text(), nullable=nullable, server_default=None if nullable else "")
    op.add_column(table, added)
    op.execute(f"UPDATE {table} SET new_{column} = {column}")
    op.drop_column(table, column)
    op.alter_column(table, f"new_{column}", new_column_name=column)
