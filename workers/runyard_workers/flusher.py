"""Sends the frames of all runs of the process to Redis, in one script call at a time."""

import asyncio
from collections.abc import Sequence
from typing import Protocol

import structlog

from runyard.errors import StoreUnavailable
from runyard.streams.connect import redis_backoff
from runyard.streams.ops import Answer, Op
from runyard_workers.stream_writer import Parcel, StreamWriter

CALL_BYTES = 1_048_576
"""About as much as one call carries: it keeps Redis busy for some milliseconds, no longer."""

BUFFER_MAX_BYTES = 64 * 1_048_576
"""The most unsent frames in the process; beyond it the largest streams lose theirs and are reset later."""

TOUCHES_A_RETENTION = 4

log = structlog.get_logger()


class Store(Protocol):
    """The part of `runyard.streams.store.FrameStore` that the flusher needs."""

    @property
    def retain_s(self) -> float: ...

    @property
    def max_bytes(self) -> int: ...

    async def apply(self, ops: Sequence[Op]) -> list[Answer]: ...


class Flusher:
    """Sends at once if no call is in flight; what is written during a call is sent with the next one.

    While Redis is away frames are kept, and sent when it is back. A frame that arrived although its call failed is not
    sent again. Runs notice nothing of this except the state of their writers.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._writers: set[StreamWriter] = set()
        self._ready: dict[StreamWriter, None] = {}  # in the order in which they became so
        self._wake = asyncio.Event()
        self._buffered_bytes = 0
        self._away_since: float | None = None

    def open(self, stream_id: str, generation: int) -> StreamWriter:
        """A writer for a stream. A new stream may be written to at once, from number 1; another one after `await
        writer.opened()`.
        """
        writer = StreamWriter(
            stream_id,
            generation,
            max_bytes=self._store.max_bytes,
            on_bytes=self._on_bytes,
            on_release=self._writers.discard,
        )
        self._writers.add(writer)
        self._make_ready(writer)
        return writer

    @property
    def is_away(self) -> bool:
        """Whether Redis does not answer; may be read from any thread."""
        return self._away_since is not None

    @property
    def away_s(self) -> float:
        """How long Redis has not answered; 0 while it does."""
        return 0.0 if self._away_since is None else asyncio.get_running_loop().time() - self._away_since

    async def run(self) -> None:
        """Until cancelled. Frames that are not sent by then are dropped."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._send_forever())
            tasks.create_task(self._touch_forever())

    async def _send_forever(self) -> None:
        backoff = redis_backoff()
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._ready:
                if await self._call():
                    backoff.reset()
                else:
                    await asyncio.sleep(backoff.next_s())

    async def _call(self) -> bool:
        """False: Redis gave no answer."""
        parcels = self._next_parcels()
        if not parcels:  # all who waited for Redis have left: nobody asks it any more
            self._away_since = None
            return True
        try:
            answers = iter(await self._store.apply([op for parcel in parcels.values() for op in parcel.ops]))
        except StoreUnavailable as error:
            self._note(away=True, reason=str(error))
            for writer, parcel in parcels.items():
                writer.unanswered(parcel)
                self._make_ready(writer)
            return False
        self._note(away=False)
        for writer, parcel in parcels.items():
            writer.settle(parcel, [next(answers) for _ in parcel.ops])
            if writer.has_work:
                self._make_ready(writer)
        return True

    def _next_parcels(self) -> dict[StreamWriter, Parcel]:
        """Writers take turns: one with more than fits into a call queues again behind the others."""
        parcels: dict[StreamWriter, Parcel] = {}
        left_bytes = CALL_BYTES
        while self._ready and left_bytes > 0:
            writer = next(iter(self._ready))
            del self._ready[writer]
            if writer.has_work:
                parcels[writer] = writer.parcel(left_bytes)
                left_bytes -= parcels[writer].size_bytes
        return parcels

    def _make_ready(self, writer: StreamWriter) -> None:
        self._ready[writer] = None
        self._wake.set()

    def _on_bytes(self, writer: StreamWriter, delta_bytes: int) -> None:
        self._buffered_bytes += delta_bytes
        if delta_bytes > 0:
            self._make_ready(writer)
            while self._buffered_bytes > BUFFER_MAX_BYTES:
                max(self._writers, key=lambda each: each.unsent_bytes).overflow()

    async def _touch_forever(self) -> None:
        while True:
            await asyncio.sleep(self._store.retain_s / TOUCHES_A_RETENTION)
            for writer in self._writers:
                writer.touch()
                self._make_ready(writer)

    def _note(self, *, away: bool, reason: str = "") -> None:
        if away and self._away_since is None:
            self._away_since = asyncio.get_running_loop().time()
            log.warning("redis is away", reason=reason, buffered_bytes=self._buffered_bytes)
        elif self._away_since is not None and not away:
            self._away_since = None
            log.info("redis is back", buffered_bytes=self._buffered_bytes)
