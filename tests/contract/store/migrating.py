"""A process that migrates one database and says how it goes; a script, so that a test can start many and kill one.

Arguments: the URL, and "all" or the beginning of the statement after which it stands still. It writes lines: `ready`,
then after a line on its input `waiting` (before it asks for the lock) and either `done <number of migrations run>` or
`half way`, where it stays until it is killed.
"""

import logging
import sys
import threading

import sqlalchemy as sa

from runyard.db.migrate import upgrade


def say(line: str) -> None:
    print(line, flush=True)  # noqa: T201 - how it talks to the test


class Count(logging.Handler):
    runs = 0

    def emit(self, record: logging.LogRecord) -> None:
        self.runs += record.getMessage().startswith("Running upgrade")


def main(database_url: str, until: str) -> None:
    count = Count()
    logger = logging.getLogger("alembic.runtime.migration")
    logger.setLevel(logging.INFO)
    logger.addHandler(count)

    @sa.event.listens_for(sa.Engine, "before_cursor_execute")
    def _before(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        if statement == "BEGIN IMMEDIATE" or "pg_advisory_xact_lock" in statement:
            say("waiting")

    @sa.event.listens_for(sa.Engine, "after_cursor_execute")
    def _after(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        if statement.strip().startswith(until):
            say("half way")
            threading.Event().wait()

    say("ready")
    sys.stdin.readline()
    upgrade(database_url)
    say(f"done {count.runs}")


main(*sys.argv[1:])
