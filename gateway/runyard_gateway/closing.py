"""Closes the streams of invocations that this gateway has settled, and deletes those of erased runs."""

from collections.abc import Sequence

import structlog

from runyard.db.closes import mark_closed
from runyard.errors import StoreUnavailable
from runyard.lifecycle.closing import close_by_reset, is_in_doubt, last_before
from runyard.lifecycle.endings import Ending
from runyard.streams.ops import Status
from runyard_gateway.gateway import Gateway

log = structlog.get_logger()


async def close_stream(gateway: Gateway, ending: Ending) -> None:
    """Close the stream of an invocation that this gateway has settled. If that fails, a worker closes it later."""
    try:
        last_frame = await _close(gateway, ending)
        numbers = {} if last_frame == ending.last_frame else {ending.invocation_id: last_frame}
        if await gateway.database.write(mark_closed, [ending.invocation_id], last_frames=numbers):
            await gateway.store.forget([ending.stream_id])
    except StoreUnavailable as error:
        log.warning("stream not closed yet", invocation_id=ending.invocation_id, error=str(error))


async def _close(gateway: Gateway, ending: Ending) -> int:
    """Returns the number of the last frame before the closing ones, as the row shall have it. After a reset the row's
    base has their place, and its number stays.
    """
    if is_in_doubt(ending, await gateway.store.server_run_id()):
        await close_by_reset(gateway.database, gateway.store, ending)
        return ending.last_frame
    answer = await gateway.store.close(ending.close())
    if answer.status is Status.BELOW:
        await close_by_reset(gateway.database, gateway.store, ending, stored_last=answer.last)
        return ending.last_frame
    return last_before(answer, ending)


async def forget_streams(gateway: Gateway, stream_ids: Sequence[str]) -> None:
    """Delete the streams of erased runs. If that fails, they expire by their TTL; nobody can read them meanwhile."""
    try:
        await gateway.store.forget(stream_ids)
    except StoreUnavailable as error:
        log.warning("streams of erased rows are not deleted yet", streams=len(stream_ids), error=str(error))
