"""Ends the streams that this gateway has to end, once the rows say so."""

from collections.abc import Sequence

import structlog

from runyard.db.closes import mark_closed
from runyard.errors import StoreUnavailable
from runyard.lifecycle.closing import close_anew, is_in_doubt, last_before
from runyard.lifecycle.endings import Ending
from runyard.streams.ops import Status
from runyard_gateway.gateway import Gateway

log = structlog.get_logger()


async def close_stream(gateway: Gateway, ending: Ending) -> None:
    """Close the stream of an invocation that was settled here. If that fails, a worker finds it by its row and closes
    it later.
    """
    try:
        last_frame = await _close(gateway, ending)
        numbers = {} if last_frame == ending.last_frame else {ending.invocation_id: last_frame}
        if await gateway.database.write(mark_closed, [ending.invocation_id], last_frames=numbers):
            await gateway.store.forget([ending.stream_id])
    except StoreUnavailable as error:
        log.warning("stream not closed yet", invocation_id=ending.invocation_id, error=str(error))


async def _close(gateway: Gateway, ending: Ending) -> int:
    """Returns the number of the last frame before the closing ones. After a reset the base in the row says where they
    are.
    """
    if is_in_doubt(ending, await gateway.store.server_run_id()):
        await close_anew(gateway.database, gateway.store, ending)
        return ending.last_frame
    answer = await gateway.store.close(ending.close())
    if answer.status is Status.BELOW:
        await close_anew(gateway.database, gateway.store, ending, stored_last=answer.last)
        return ending.last_frame
    return last_before(answer, ending)


async def forget_streams(gateway: Gateway, stream_ids: Sequence[str]) -> None:
    """Delete the streams of erased rows. Nobody can read them any more; what cannot be deleted now
    expires by its TTL.
    """
    try:
        await gateway.store.forget(stream_ids)
    except StoreUnavailable as error:
        log.warning("streams of erased rows are not deleted yet", streams=len(stream_ids), error=str(error))
