"""`Prefer: wait=N`: hold the answer until an invocation is settled. What is told is always read from its row."""

import time

from runyard.db import reads
from runyard.db.reads import Owner
from runyard.db.records import Invocation, Run
from runyard_gateway.gateway import Gateway

PAST_THE_TIP = 2**62
"""A cursor that no frame reaches: the tail wakes only when the stream ends."""


async def awaited(gateway: Gateway, invocation_id: str, owner: Owner, seconds: int) -> tuple[Invocation, Run] | None:
    """The invocation as it is once it is settled, or when so many seconds are over; None: it is not the caller's."""
    deadline = time.monotonic() + seconds
    found = await gateway.database.read(reads.invocation_of, invocation_id, owner)
    if found is None or found[0].settled_at is not None or not seconds:
        return found
    async with gateway.hub.watch(found[0].stream_id) as tail:
        while (left := deadline - time.monotonic()) > 0 and not (await tail.pull(PAST_THE_TIP, left)).ended:
            pass
    return await gateway.database.read(reads.invocation_of, invocation_id, owner)
