"""Closes the streams of settled invocations: the terminal frame is sent to Redis after the settlement is committed.

A settlement does not wait for this. If the process dies before, another worker finds the open stream by its row. If two
close the same stream, the first one wins.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import NamedTuple

import structlog

from runyard.db.closes import mark_closed
from runyard.db.engine import Database
from runyard.errors import StoreUnavailable
from runyard.ids import InvocationId, StreamId
from runyard.lifecycle.closing import Frames, close_by_reset, is_in_doubt, last_before
from runyard.lifecycle.endings import Ending
from runyard.streams.ops import Status
from runyard_workers.stream_writer import StreamWriter, WriterState

RETRY_S = 1.0
MARK_S = 0.5

CLOSES_A_CALL = 50
UNCLOSED_MAX = 5_000
"""How many are kept while Redis is away. Beyond that the oldest are left to the sweep (`late_closes.py`)."""

log = structlog.get_logger()


class _Unclosed(NamedTuple):
    ending: Ending
    writer: StreamWriter | None

    async def has_its_frames(self) -> bool:
        """Whether Redis has everything that the run wrote, or never will have it."""
        return self.writer is None or await self.writer.flush() or self.writer.state is not WriterState.LIVE

    def release(self) -> None:
        if self.writer is not None:
            self.writer.release()


class Closer:
    """Streams are closed at once, many in one script call; their rows are marked in batches.

    While Redis is away endings wait, together with the frames that their runs still have to send.
    """

    def __init__(self, database: Database, store: Frames) -> None:
        self._database = database
        self._store = store
        self._unclosed: OrderedDict[InvocationId, _Unclosed] = OrderedDict()
        self._unmarked: dict[InvocationId, StreamId] = {}
        self._last_frames: dict[InvocationId, int] = {}
        self._work = asyncio.Event()
        self._done = asyncio.Condition()

    def close(self, ending: Ending, writer: StreamWriter | None = None) -> None:
        """Close the stream soon, after the frames of its writer, which belongs to the closer from now on.

        A stream is closed once, even if this is called twice.
        """
        unclosed = _Unclosed(ending, writer)
        if ending.invocation_id in self._unclosed:
            unclosed.release()
            return
        if len(self._unclosed) == UNCLOSED_MAX:
            _, oldest = self._unclosed.popitem(last=False)
            oldest.release()
        self._unclosed[ending.invocation_id] = unclosed
        self._work.set()

    def has(self, invocation_id: InvocationId) -> bool:
        """Whether its ending is on its way, or in Redis and its row not marked yet."""
        return invocation_id in self._unclosed or invocation_id in self._unmarked

    async def run(self) -> None:
        """Close and mark until cancelled; what fails because something is away is tried again."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._close_forever())
            tasks.create_task(self._mark_forever())

    async def drained(self) -> None:
        """Wait until every ending that was handed over is closed and marked."""
        async with self._done:
            await self._done.wait_for(lambda: not self._unclosed and not self._unmarked)

    async def _close_forever(self) -> None:
        while True:
            await self._work.wait()
            self._work.clear()
            while self._unclosed:
                batch = list(islice(self._unclosed.values(), CLOSES_A_CALL))
                try:
                    await self._close_or_drop(batch)
                except StoreUnavailable as error:
                    log.warning("streams not closed yet", count=len(self._unclosed), error=str(error))
                    await asyncio.sleep(RETRY_S)

    async def _close_or_drop(self, batch: Sequence[_Unclosed]) -> None:
        """Close a batch. An ending that cannot be closed by a fault of ours is dropped: it must keep neither the others
        open nor end the worker with all its runs.
        """
        try:
            await self._close(batch)
        except StoreUnavailable:
            raise
        except Exception:
            if len(batch) == 1:
                log.exception("stream cannot be closed", invocation_id=batch[0].ending.invocation_id)
                self._forget(batch[0])
                return
            for each in batch:
                await self._close_or_drop([each])

    async def _close(self, unclosed: Sequence[_Unclosed]) -> None:
        complete = await asyncio.gather(*(each.has_its_frames() for each in unclosed))
        ready = [each for each, is_complete in zip(unclosed, complete, strict=True) if is_complete]
        in_doubt = await self._in_doubt(ready)
        sure = [each for each in ready if each.ending.invocation_id not in in_doubt]
        answers = await self._store.apply([each.ending.close() for each in sure])
        for each, answer in zip(sure, answers, strict=True):
            if answer.status is Status.BELOW:
                await close_by_reset(self._database, self._store, each.ending, stored_last=answer.last)
            elif (last := last_before(answer, each.ending)) != each.ending.last_frame:
                self._last_frames[each.ending.invocation_id] = last
            self._closed(each)
        for each in ready:
            if each.ending.invocation_id in in_doubt:
                await close_by_reset(self._database, self._store, each.ending)
                self._closed(each)

    async def _in_doubt(self, ready: Sequence[_Unclosed]) -> set[InvocationId]:
        others = [each.ending for each in ready if each.writer is None]
        if not others:
            return set()
        server_run_id = await self._store.server_run_id()
        return {ending.invocation_id for ending in others if is_in_doubt(ending, server_run_id)}

    def _closed(self, each: _Unclosed) -> None:
        self._forget(each)
        self._unmarked[each.ending.invocation_id] = each.ending.stream_id

    def _forget(self, each: _Unclosed) -> None:
        each.release()
        self._unclosed.pop(each.ending.invocation_id, None)

    async def _mark_forever(self) -> None:
        while True:
            await asyncio.sleep(MARK_S)
            marked = dict(self._unmarked)
            try:
                if marked:
                    await self._mark(marked)
            except StoreUnavailable as error:
                log.warning("streams not marked closed yet", count=len(marked), error=str(error))
                continue
            for key in marked:
                del self._unmarked[key]
                self._last_frames.pop(key, None)
            async with self._done:
                self._done.notify_all()

    async def _mark(self, marked: Mapping[InvocationId, StreamId]) -> None:
        numbers = {key: self._last_frames[key] for key in marked if key in self._last_frames}
        erased = await self._database.write(mark_closed, list(marked), last_frames=numbers)
        await self._store.forget([marked[key] for key in erased])
