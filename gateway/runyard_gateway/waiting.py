"""`Prefer: wait=N`: delay the answer until an invocation is settled. The answer is always read from its row."""

import time

from runyard.db import reads
from runyard.db.records import Invocation, Run
from runyard_gateway.auth.principal import Principal
from runyard_gateway.gateway import Gateway

PAST_THE_TIP = 2**62
"""A cursor that no frame reaches: the tail wakes only when the stream ends."""


async def awaited(
    gateway: Gateway, invocation_id: str, principal: Principal, seconds: int
) -> tuple[Invocation, Run] | None:
    """The invocation once it is settled, or after so many seconds, or when the caller's credential ends. None: it is
    not the caller's.

    Raises:
        RunNotFound: it was deleted meanwhile.
        InternalError: its row cannot be read.
    """
    deadline = time.monotonic() + seconds
    found = await gateway.database.read(reads.invocation_of, invocation_id, principal.scope)
    if found is None or found[0].settled_at is not None or not seconds:
        return found
    with gateway.hub.watch(found[0].stream_id) as tail:
        take_back = principal.credential.on_end(lambda _: tail.interrupt())
        try:
            while (left := deadline - time.monotonic()) > 0 and not (await tail.pull(PAST_THE_TIP, left)).ended:
                pass
        finally:
            take_back()
    return await gateway.database.read(reads.invocation_of, invocation_id, principal.scope)
