"""Reads stored frames in pages."""

from collections.abc import Awaitable, Callable, Collection
from enum import StrEnum
from typing import Any, NamedTuple

from redis.asyncio import Redis
from redis.exceptions import ResponseError

from runyard.frames import Frame
from runyard.streams.connect import answered, redis_run_id
from runyard.streams.keys import StreamKeys

PAGE = 500
"""Frames for each read: larger pages make a replay no faster."""

_META = ("state", "first", "last", "base", "generation")


class StreamState(StrEnum):
    LIVE = "live"
    CLOSED = "closed"


class StreamInfo(NamedTuple):
    state: StreamState
    first: int
    """The oldest number kept; `last + 1` while nothing is."""
    last: int
    base: int
    """Where the last reset begins; 0: there was none."""
    generation: int

    def has_lost(self, cursor: int) -> bool:
        """Whether frames after `cursor` were dropped, so that reading on would leave a hole.

        A cursor below a base can read on from the base, as long as the base's own frame (a rewind of everything) is
        kept.
        """
        return cursor + 1 < self.first and not (cursor < self.base == self.first)


class FrameReader:
    """`client` comes from `runyard.streams.connect`; its owner closes it.

    All methods raise `StoreUnavailable` when Redis does not answer.
    """

    def __init__(self, client: Redis, *, prefix: str) -> None:
        self._client = client
        self._execute: Callable[..., Awaitable[Any]] = client.execute_command
        self.keys = StreamKeys(prefix=prefix)

    async def read(self, stream_id: str, after: int, count: int = PAGE) -> list[Frame]:
        """The next frames, `count` at most, with numbers above `after` and no hole between them; empty: none is
        stored.
        """
        return _unbroken(await self.read_stored(stream_id, after, count))

    async def read_stored(self, stream_id: str, after: int, count: int = PAGE) -> list[Frame]:
        """As `read`, with what is behind a hole."""
        async with answered():
            entries = await self._execute("XRANGE", self.keys.frames(stream_id), f"({after}-0", "+", "COUNT", count)
        return [_frame(entry_id, fields) for entry_id, fields in entries]

    async def info(self, stream_id: str) -> StreamInfo | None:
        return (await self.infos([stream_id])).get(stream_id)

    async def look(self, stream_id: str, after: int, count: int = PAGE) -> tuple[StreamInfo | None, list[Frame]]:
        """`info` and `read` in one round trip. The frames may be newer than the info.

        If frames between `after` and those that were found are gone, `first` is that of the first one found: when a
        person deletes frames, the hash is not changed.
        """
        pipeline = self._client.pipeline(transaction=False)
        pipeline.hmget(self.keys.meta(stream_id), _META)
        pipeline.xlen(self.keys.frames(stream_id))
        pipeline.execute_command("XRANGE", self.keys.frames(stream_id), f"({after}-0", "+", "COUNT", count)
        async with answered():
            meta, count_kept, entries = await pipeline.execute(raise_on_error=False)
            info = _info(meta, count_kept)
        if info is not None and _has_hole(info, count_kept):
            info = None
        frames = [] if isinstance(entries, ResponseError) else _unbroken([_frame(*entry) for entry in entries])
        if info is not None and info.last > after:
            oldest = frames[0].seq if frames else info.last + 1
            if oldest > after + 1:
                info = info._replace(first=max(info.first, oldest))  # noqa: SLF001 - a public method of named tuples
        return info, frames

    async def server_run_id(self) -> str:
        """If it is another than before, Redis restarted and may have lost frames."""
        return await redis_run_id(self._client)

    async def infos(self, stream_ids: Collection[str]) -> dict[str, StreamInfo]:
        """By stream, in one round trip. Streams that do not exist, or cannot be read, are left out; so are those that
        have ended and have a hole, since a person deleted frames: the rows have all of them.
        """
        stored = await self._stored_infos(stream_ids)
        return {stream_id: info for stream_id, (info, count) in stored.items() if not _has_hole(info, count)}

    async def stored_infos(self, stream_ids: Collection[str]) -> dict[str, StreamInfo]:
        """As `infos`, with those that have a hole."""
        return {stream_id: info for stream_id, (info, _) in (await self._stored_infos(stream_ids)).items()}

    async def _stored_infos(self, stream_ids: Collection[str]) -> dict[str, tuple[StreamInfo, int]]:
        """With how many frames are stored of each."""
        pipeline = self._client.pipeline(transaction=False)
        for stream_id in stream_ids:
            pipeline.hmget(self.keys.meta(stream_id), _META)
            pipeline.xlen(self.keys.frames(stream_id))
        async with answered():
            replies = await pipeline.execute(raise_on_error=False)
            pairs = zip(replies[::2], replies[1::2], strict=True)
            infos = [(stream_id, _info(*pair), pair[1]) for stream_id, pair in zip(stream_ids, pairs, strict=True)]
        return {stream_id: (info, count) for stream_id, info, count in infos if info is not None}


def _info(reply: Any, count: Any) -> StreamInfo | None:
    """`count`: how many frames are stored.

    None also if a key is not one of ours: its writer drops it, and the other streams can still be read. As to its
    writer, a hash whose frames the server has dropped is no stream any more.
    """
    for each in (reply, count):
        if isinstance(each, ResponseError) and "WRONGTYPE" in str(each):
            return None
        if isinstance(each, Exception):
            raise each
    state, *numbers = reply
    try:
        info = StreamInfo(StreamState(state.decode()), *map(int, numbers))
    except (AttributeError, TypeError, ValueError):
        return None
    return info if count or info.last < info.first else None


def _has_hole(info: StreamInfo, count: int) -> bool:
    return info.state is StreamState.CLOSED and count != info.last - info.first + 1


def _unbroken(frames: list[Frame]) -> list[Frame]:
    """The frames up to the first hole. The script leaves none, but a person who deletes a frame does."""
    if not frames or frames[-1].seq - frames[0].seq == len(frames) - 1:
        return frames
    first = frames[0].seq
    return [frame for index, frame in enumerate(frames) if frame.seq == first + index]


def _frame(entry_id: bytes, fields: list[Any]) -> Frame:
    seq = int(entry_id[:-2])  # "<seq>-0"
    if len(fields) == 2:  # noqa: PLR2004 - one field, `d`, and its value
        return Frame(seq, None, fields[1])
    return Frame(seq, fields[1].decode(), fields[3])
