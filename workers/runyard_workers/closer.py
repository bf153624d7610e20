"""Ends the streams of settled invocations: the terminal frame goes to Redis after the settlement is committed.

Settling does not wait for it. What is not yet closed when the process dies is found by its row (`stream_closed`).
"""

import asyncio
from dataclasses import dataclass
from typing import Any

import structlog

from runyard.db.engine import Database
from runyard.db.turns import mark_closed
from runyard.errors import StoreUnavailable
from runyard.frames import FrameEvent, event_payload
from runyard.ids import InvocationId, StreamId
from runyard.outcomes import terminal_payload
from runyard.streams.ops import Close, Status
from runyard.streams.store import FrameStore

RETRY_S = 1.0
MARK_S = 0.5

log = structlog.get_logger()


@dataclass(frozen=True, kw_only=True, slots=True)
class Ending:
    """An invocation as it was settled. `text_length`: code points of the answer text that its rows hold."""

    invocation_id: InvocationId
    stream_id: StreamId
    request_id: str
    result: dict[str, Any]
    error: dict[str, Any] | None
    last_frame: int
    last_seq: int
    last_role: str
    text_length: int

    def close(self) -> Close:
        return Close(
            stream_id=self.stream_id,
            settled_last=self.last_frame,
            frames=[
                event_payload(FrameEvent.MESSAGE, {"seq": self.last_seq, "role": self.last_role}),
                terminal_payload(result=self.result, error=self.error, request_id=self.request_id),
            ],
            rewind=event_payload(FrameEvent.REWIND, {"toSeq": self.last_frame, "length": self.text_length}),
        )


class Closer:
    """Endings are closed at once, many in one script call; their rows are marked in batches."""

    def __init__(self, database: Database, store: FrameStore) -> None:
        self._database = database
        self._store = store
        self._unclosed: list[Ending] = []
        self._unmarked: list[InvocationId] = []
        self._work = asyncio.Event()
        self._done = asyncio.Condition()

    def close(self, ending: Ending) -> None:
        self._unclosed.append(ending)
        self._work.set()

    async def run(self) -> None:
        """Close and mark until cancelled; whatever is away is tried again."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._close_forever())
            tasks.create_task(self._mark_forever())

    async def drained(self) -> None:
        """Wait until every ending handed over is closed and marked."""
        async with self._done:
            await self._done.wait_for(lambda: not self._unclosed and not self._unmarked)

    async def _close_forever(self) -> None:
        while True:
            await self._work.wait()
            self._work.clear()
            try:
                await self._close(list(self._unclosed))
            except StoreUnavailable as error:
                log.warning("streams not closed yet", count=len(self._unclosed), error=str(error))
                await asyncio.sleep(RETRY_S)
                self._work.set()

    async def _close(self, endings: list[Ending]) -> None:
        if not endings:
            return
        answers = await self._store.apply([ending.close() for ending in endings])
        for ending, answer in zip(endings, answers, strict=True):
            if answer.status is Status.BELOW:
                # Redis lost frames of it: gateways see the settled row and end the stream from there.
                log.warning("stream lost frames", stream_id=ending.stream_id, invocation_id=ending.invocation_id)
        del self._unclosed[: len(endings)]
        self._unmarked += [ending.invocation_id for ending in endings]

    async def _mark_forever(self) -> None:
        while True:
            await asyncio.sleep(MARK_S)
            marked = list(self._unmarked)
            try:
                if marked:
                    await self._database.write(mark_closed, marked)
            except StoreUnavailable as error:
                log.warning("streams not marked closed yet", count=len(marked), error=str(error))
                continue
            del self._unmarked[: len(marked)]
            async with self._done:
                self._done.notify_all()
