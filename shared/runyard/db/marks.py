"""The mark that each change leaves on its row, by which the feed finds what is new. There is no counter for it, on
which all transactions would have to wait.

On Postgres the mark is the transaction's id. A reader takes the rows below the oldest transaction that still runs,
since nothing new can appear there. On SQLite, which has one writer at a time, it is one more than the highest mark.
Statements need not set it: it is the column's default and its `onupdate`.
"""

from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler

_HIGHEST_AND_ONE = """(SELECT coalesce(max(mark), 0) + 1 FROM (
    SELECT max(changed_xid) AS mark FROM agent_runs
    UNION ALL SELECT max(changed_xid) FROM agent_messages
    UNION ALL SELECT max(changed_xid) FROM agent_deletions))"""


class CurrentMark(sa.ColumnElement[int]):
    """The mark of the current transaction's changes."""

    inherit_cache = True
    type = sa.BigInteger()


@compiles(CurrentMark, "postgresql")
def _transaction_id(_element: CurrentMark, _compiler: SQLCompiler, **_options: Any) -> str:
    return "CAST(CAST(pg_current_xact_id() AS text) AS bigint)"


@compiles(CurrentMark, "sqlite")
def _next(_element: CurrentMark, _compiler: SQLCompiler, **_options: Any) -> str:
    return _HIGHEST_AND_ONE


def marked() -> sa.Column[int]:
    """The column for a table's marks. Rows from before it existed have 0, which no cursor is below."""
    mark = CurrentMark()
    return sa.Column("changed_xid", sa.BigInteger, nullable=False, server_default="0", default=mark, onupdate=mark)
