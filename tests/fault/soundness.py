"""Checks by `runyard fsck` that a stack's database and Redis are consistent."""

from tests.integration.stack import Stack

from runyard.db.engine import Database
from runyard.fsck.inspection import Inspection, Scope
from runyard.streams.connect import connect


async def assert_sound(stack: Stack, *, since_ms: int) -> None:
    found = await unsound(stack, since_ms=since_ms)
    assert not found, "\n".join(["fsck finds broken:", *found])


async def unsound(stack: Stack, *, since_ms: int) -> list[str]:
    """What is broken of the runs that were active since then; what the system is mending it is given the time for.

    One line each, as `runyard fsck` prints it.
    """
    backing = stack.backing
    database, client = Database(backing.database_url, pool_size=1), connect(backing.redis_url)
    try:
        inspection = Inspection(database, client, prefix=backing.prefix)
        return [finding.to_line() async for finding in inspection.findings(Scope(since_ms=since_ms))]
    finally:
        await client.aclose()
        await database.close()
