"""A process that migrates a database and reports its progress. A test can start many and kill one.

It sends lines: `ready`, then after a line to it `waiting` (before it asks for the lock) and either `done <number of
migrations run>` or `half way`, where it stays until it is killed.
"""

import logging
import threading
from multiprocessing.connection import Connection

import sqlalchemy as sa

from runyard.db.migrate import upgrade


class Count(logging.Handler):
    runs = 0

    def emit(self, record: logging.LogRecord) -> None:
        self.runs += record.getMessage().startswith("Running upgrade")


def main(database_url: str, until: str, test: Connection) -> None:
    """`until`: the beginning of the statement after which it stands still."""
    count = Count()
    logger = logging.getLogger("alembic.runtime.migration")
    logger.setLevel(logging.INFO)
    logger.addHandler(count)

    @sa.event.listens_for(sa.Engine, "before_cursor_execute")
    def _before(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        if statement == "BEGIN IMMEDIATE" or "pg_advisory_xact_lock" in statement:
            test.send("waiting")

    @sa.event.listens_for(sa.Engine, "after_cursor_execute")
    def _after(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        if statement.strip().startswith(until):
            test.send("half way")
            threading.Event().wait()

    test.send("ready")
    test.recv()
    upgrade(database_url)
    test.send(f"done {count.runs}")
