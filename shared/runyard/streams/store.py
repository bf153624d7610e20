"""Writes frames with the one script, and reads them."""

from collections.abc import Sequence
from importlib.resources import files

from redis.asyncio import Redis
from redis.exceptions import ReadOnlyError

from runyard.frames import FRAME_OVERHEAD_BYTES
from runyard.metrics import FRAME_BYTES, FRAMES
from runyard.streams.connect import answered
from runyard.streams.ops import Answer, Append, Argument, Close, Op, Reset, Status
from runyard.streams.reader import FrameReader


class FrameStore(FrameReader):
    """Keeps a stream for `retain_s` after its end, or after the last touch of a live one; at most `max_bytes` of frames
    for each stream, and at most `max_streams` finished ones. All methods raise `StoreUnavailable` when Redis does not
    answer or refuses to write.
    """

    def __init__(self, client: Redis, *, prefix: str, retain_s: int, max_bytes: int, max_streams: int) -> None:
        super().__init__(client, prefix=prefix)
        self.retain_s = retain_s
        self.max_bytes = max_bytes
        self._limits: list[Argument] = [prefix, max_bytes, retain_s * 1000, max_streams, FRAME_OVERHEAD_BYTES]
        source = files("runyard.streams").joinpath("frames.lua").read_text()
        self._script = client.register_script(source)  # loads itself again after a flush or a restart

    async def apply(self, ops: Sequence[Op]) -> list[Answer]:
        """Execute operations in one call, in order, with one answer each; other writers see all of it or nothing.

        After `StoreUnavailable` it is unknown whether it happened.
        """
        keys: list[str] = [self.keys.finished]
        arguments = list(self._limits)
        for op in ops:
            keys += (self.keys.frames(op.stream_id), self.keys.meta(op.stream_id))
            arguments += op.arguments()
        async with answered():
            try:
                replies = await self._script(keys, arguments)
            except ReadOnlyError:
                # The primary became a replica: connect anew, the name leads to the new one by now.
                await self._client.connection_pool.disconnect(inuse_connections=False)
                raise
        _count(ops)
        return [Answer(Status(status.decode()), last, created=made == [1]) for status, last, *made in replies]

    async def forget(self, stream_ids: Sequence[str]) -> None:
        """Delete streams whose rows are gone. (The gateways' `Watcher` tells their readers.)"""
        if not stream_ids:
            return
        keys = [key for stream_id in stream_ids for key in (self.keys.frames(stream_id), self.keys.meta(stream_id))]
        pipeline = self._client.pipeline(transaction=False)
        pipeline.unlink(*keys)
        pipeline.zrem(self.keys.finished, *stream_ids)
        async with answered():
            await pipeline.execute()

    async def close(self, close: Close) -> Answer:
        (answer,) = await self.apply([close])
        return answer


def _count(ops: Sequence[Op]) -> None:
    sent = [frame for op in ops if isinstance(op, Append | Reset | Close) for frame in op.frames]
    FRAMES.inc(len(sent))
    FRAME_BYTES.inc(sum(len(data) for _event, data in sent))
