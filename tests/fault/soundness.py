"""`runyard fsck` on a stack: what the database and Redis hold fits together, whatever has happened to it."""

from tests.integration.stack import Stack

from runyard.db.engine import Database
from runyard.fsck.inspection import Inspection, Scope
from runyard.streams.connect import connect


async def assert_sound(stack: Stack, *, since_ms: int) -> None:
    """Of the runs that were active since then. What the system is about to mend it is given the time for."""
    backing = stack.backing
    database, client = Database(backing.database_url, pool_size=1), connect(backing.redis_url)
    try:
        inspection = Inspection(database, client, prefix=backing.prefix)
        found = [finding.to_line() async for finding in inspection.findings(Scope(since_ms=since_ms))]
    finally:
        await client.aclose()
        await database.close()
    assert found == [], "fsck finds these broken"
