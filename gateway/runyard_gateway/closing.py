"""Ends the stream of an invocation that this gateway settled. What fails here a worker does later, by the row."""

import structlog

from runyard.db.closes import mark_closed
from runyard.errors import StoreUnavailable
from runyard.lifecycle.endings import Ending
from runyard.streams.ops import Status
from runyard_gateway.gateway import Gateway

log = structlog.get_logger()


async def close_stream(gateway: Gateway, ending: Ending) -> None:
    try:
        answer = await gateway.store.close(ending.close())
        if answer.status is not Status.BELOW:
            await gateway.database.write(mark_closed, [ending.invocation_id])
    except StoreUnavailable as error:
        log.warning("stream not closed yet", invocation_id=ending.invocation_id, error=str(error))
