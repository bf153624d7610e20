"""Rooms: a message is handed to all readers of the room at this gateway, and is not stored."""

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial

import orjson
import structlog

from runyard.errors import RunyardError
from runyard.frames import Frame
from runyard.rooms import MISSED, room_channel
from runyard_gateway.hub import Hub
from runyard_gateway.members import Members, Room
from runyard_gateway.sse import Chunk, encode

WAITING_MAX_BYTES = 262_144
"""How far a reader may fall behind; then the oldest messages are dropped, and the reader is told how many."""

log = structlog.get_logger()


class RoomReader:
    def __init__(self) -> None:
        self._waiting: deque[bytes] = deque()
        self._size_bytes = 0
        self._missed = 0
        self._news = asyncio.Event()
        self._ended = False
        self._failure: RunyardError | None = None

    def give(self, message: bytes) -> None:
        self._waiting.append(message)
        self._size_bytes += len(message)
        while self._size_bytes > WAITING_MAX_BYTES:
            self._size_bytes -= len(self._waiting.popleft())
            self._missed += 1
        self._news.set()

    async def pull(self, cursor: int, timeout_s: float) -> Chunk:
        """What was said since the last pull; waits up to `timeout_s` for it.

        Raises:
            RunyardError: what `fail` was given.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._news.wait()
        self._news.clear()
        if self._failure is not None:
            raise self._failure
        if self._ended:
            return Chunk(b"", cursor, ended=True)
        body = b"".join(self._waiting)
        if self._missed:
            body = encode(Frame(0, MISSED, b'{"messages":%d}' % self._missed)) + body
        self._waiting.clear()
        self._size_bytes = self._missed = 0
        return Chunk(body, cursor, ended=False)

    def interrupt(self) -> None:
        self._ended = True
        self._news.set()

    def fail(self, error: RunyardError) -> None:
        self._failure = error
        self._news.set()


class Rooms:
    """One subscription for each room, over the hub's connection."""

    def __init__(self, hub: Hub, members: Members, *, prefix: str) -> None:
        self._hub = hub
        self._members = members
        self._prefix = prefix
        self._readers: dict[Room, set[RoomReader]] = {}
        self._ends: dict[Room, Callable[[], None]] = {}
        self._draining = False

    @contextlib.contextmanager
    def join(self, room: Room, user_id: str | None) -> Iterator[RoomReader]:
        """Be in the room for as long as the block runs; `user_id` None: as a service, which is no member."""
        readers = self._readers.get(room)
        if readers is None:
            readers = self._readers[room] = set()
            channel = room_channel(self._prefix, *room)
            self._ends[room] = self._hub.listen(channel, partial(self._on_message, room))
        reader = RoomReader()
        readers.add(reader)
        if self._draining:
            reader.interrupt()
        if user_id is not None:
            self._members.enter(room, user_id)
        try:
            yield reader
        finally:
            readers.discard(reader)
            if user_id is not None:
                self._members.leave(room, user_id)
            if not readers:
                del self._readers[room]
                self._ends.pop(room)()

    def drain(self) -> None:
        """The process stops: all answers end, and readers go on elsewhere."""
        self._draining = True
        for readers in self._readers.values():
            for reader in readers:
                reader.interrupt()

    def _on_message(self, room: Room, message: bytes) -> None:
        try:
            event, data = orjson.loads(message)
            encoded = encode(Frame(0, event, orjson.dumps(data)))
        except (ValueError, TypeError, AttributeError) as error:
            log.warning("broadcast unreadable", tenant_id=room[0], room=room[1], error=str(error))
            return
        for reader in self._readers[room]:
            reader.give(encoded)
