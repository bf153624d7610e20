"""The mark that each change leaves on its row, by which the feed finds what is new, complete and without a counter that
all transactions would wait for.

On Postgres it is the transaction's id: whoever reads takes the rows below the oldest transaction that still runs, since
below it nothing can appear any more. On SQLite, which has one writer at a time, it is one more than the highest mark.
Statements need not name it: it is the column's default and its `onupdate`.
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
    """The mark of what this transaction changes."""

    inherit_cache = True
    type = sa.BigInteger()


@compiles(CurrentMark, "postgresql")
def _transaction_id(_element: CurrentMark, _compiler: SQLCompiler, **_options: Any) -> str:
    return "CAST(CAST(pg_current_xact_id() AS text) AS bigint)"


@compiles(CurrentMark, "sqlite")
def _next(_element: CurrentMark, _compiler: SQLCompiler, **_options: Any) -> str:
    return _HIGHEST_AND_ONE


def marked() -> sa.Column[int]:
    """A table's column for it. Rows that were there before it have 0: no cursor is below them."""
    mark = CurrentMark()
    return sa.Column("changed_xid", sa.BigInteger, nullable=False, server_default="0", default=mark, onupdate=mark)
