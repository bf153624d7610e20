"""An execution's frames: what readers see of a run, always in step with its rows.

After each load of the run its stream is aligned: frames after the last committed turn are withdrawn by a `rewind`. If
Redis lost frames, or may have, a `reset` begins the stream anew under numbers far above the old ones.
"""

import asyncio
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from runyard.blocks import Block, text_of
from runyard.db import turns
from runyard.db.boundaries import Boundary
from runyard.db.claims import Claim
from runyard.db.inputs import steering_folded_in
from runyard.db.records import Input, Message
from runyard.db.transcripts import AssistantTurn
from runyard.db.turns import Held
from runyard.errors import StoreUnavailable
from runyard.frames import FrameEvent, Payload, event_payload, text_payload
from runyard.lifecycle.endings import RESET_DISTANCE, committed_text, kept_last, whole_text
from runyard.metrics import RESETS, REWINDS
from runyard_workers.commits import commit_repeatable
from runyard_workers.services import Services
from runyard_workers.stream_writer import StreamWriter, WriterState

FLUSH_BEFORE_COMMIT_S = 2.0

T = TypeVar("T")


class Output:
    def __init__(self, services: Services, claim: Claim, held: Held) -> None:
        self._services = services
        self._held = held
        self._redis_run_id = claim.invocation.redis_run_id
        self._base = claim.invocation.frame_base or 0
        self._sent = claim.invocation.last_frame or 0  # before it was handed over
        self._is_takeover = claim.is_takeover
        self._fresh = not claim.is_takeover
        self._sinks: dict[str | None, Sink] = {}
        self._flusher = services.flusher
        self.writer: StreamWriter = self._flusher.open(claim.invocation.stream_id, held.generation)
        if self._fresh:
            self.status("running")
            self.message(claim.run.last_seq, "user")
            self._steered([item for item in claim.folded if not item.opens])

    def message(self, seq: int, role: str) -> None:
        """Report that a row of the transcript is committed."""
        self.writer.write(event_payload(FrameEvent.MESSAGE, {"seq": seq, "role": role}))

    def appended(self, boundary: Boundary) -> None:
        """Report what a boundary's transaction appended, while the invocation goes on."""
        for row in boundary.appended:
            self.message(row.seq, row.role)
        self._steered(boundary.steered)

    def _steered(self, steering: Sequence[Input]) -> None:
        if steering:
            self.writer.write(event_payload(FrameEvent.STEERED, {"inputIds": [item.id for item in steering]}))

    def tool_start(self, block: Block) -> None:
        self.writer.write(
            event_payload(FrameEvent.TOOL_START, {"id": block["id"], "name": block["name"], "input": block["input"]})
        )

    def tool(self, block: Block, *, is_error: bool, duration_ms: int) -> None:
        """Report a call's end; what its tool writes after that is dropped."""
        self._shut(block["id"])
        self.writer.write(
            event_payload(
                FrameEvent.TOOL,
                {
                    "id": block["id"],
                    "name": block["name"],
                    "input": block["input"],
                    "isError": is_error,
                    "durationMs": duration_ms,
                },
            )
        )

    def sink(self, call_id: str | None) -> "Sink":
        """The way into the stream for a call. `call_id` None: for the system prompt's function, until its next
        evaluation.
        """
        self._shut(call_id)
        self._sinks[call_id] = Sink(self.writer, call_id)
        return self._sinks[call_id]

    async def align(self, rows: Sequence[Message]) -> None:
        """Make the stream equal to the rows of this invocation, after they were loaded.

        Raises:
            GenerationLost: a reset had to be committed, and the run belongs to another worker.
        """
        if self._fresh:
            self._fresh = False
            return
        kept = self.kept_last(rows)
        await self.writer.opened()
        if self.writer.state is WriterState.CLOSED:
            return  # settled by another
        was_handed_over = self.writer.last == self._sent > 0
        is_other = await self._is_other_redis()  # asked in any case: a reset stores which Redis it begins in
        if self.writer.broken or self.writer.last < kept or self._is_gone() or is_other:
            await self.reset(rows)
        elif self.writer.last > kept:
            self._rewind(kept, rows)
        untold = _rows_from(rows, kept) if self.writer.last == kept else []
        for row in untold:
            self.message(row.seq, row.role)
        if not was_handed_over:
            await self._tell_steering_again(rows[-1], is_told=bool(untold))
        self.status("running")

    async def _tell_steering_again(self, row: Message, *, is_told: bool) -> None:
        """The worker that folded steering into the last row may have died before it sent the frame."""
        if row.role != "user":
            return  # what was folded before was told before the answer to it was stored
        if steering := await self._services.database.read(steering_folded_in, self._held.run_id, row.seq):
            if not is_told:
                self.message(row.seq, row.role)
            self._steered(steering)

    async def flushed(self, turn: AssistantTurn, rows: Sequence[Message]) -> AssistantTurn:
        """Before a turn is committed: wait for its frames, at most 2 s. If frames were lost, write its text again."""
        await self._arrived()
        if not self.writer.broken:
            return turn
        await self.reset(rows)
        first_frame = self.writer.last + 1
        if text := text_of(turn.content):
            self.writer.write(text_payload(text))
            await self._arrived()
        return replace(turn, first_frame=first_frame, last_frame=self.writer.last)

    async def reset(self, rows: Sequence[Message]) -> None:
        """Begin the stream anew with the text of the rows, since frames were lost.

        Raises:
            GenerationLost: the run belongs to another worker.
        """
        RESETS.inc()
        base = max(self.writer.last, self.kept_last(rows), self._base) + RESET_DISTANCE
        redis_run_id = self._services.frame_server.run_id
        await commit_repeatable(self._services.database, turns.set_frame_base, self._held, base, redis_run_id)
        self._base, self._redis_run_id = base, redis_run_id
        self.writer.reset(base, whole_text(committed_text(rows, self._held.invocation_id)))

    async def flush(self) -> bool:
        """Before the settlement or a hand-over: stop all writers, and wait up to 2 s until everything that was written
        has arrived.

        False: some of it has not.
        """
        self._shut_all()
        return await self._arrived()

    async def _arrived(self) -> bool:
        """Whether Redis has everything that was written. It does not wait for a Redis that has been away for long."""
        return await self.writer.flush(max(0.0, FLUSH_BEFORE_COMMIT_S - self._flusher.away_s))

    def kept_last(self, rows: Sequence[Message]) -> int:
        """The number of the last frame that need not be withdrawn."""
        return kept_last(rows, self._held.invocation_id, base=self._base, sent=self._sent)

    def withdraw(self, rows: Sequence[Message]) -> int:
        """Withdraw the frames that belong to no committed row, since the run ends without them.

        Returns the number of the last frame before the closing ones. It is stored with the settlement, so that the
        number of the terminal frame is known even when the stream is gone.
        """
        self._shut_all()
        kept = self.kept_last(rows)
        if self.writer.broken:
            return max(kept, self.writer.last)  # readers may have seen so many; the stream is reset when it is closed
        if self.writer.state is not WriterState.LIVE or self.writer.last == kept:
            return kept  # later frames that Redis has are withdrawn when the stream is closed
        return self._rewind(kept, rows)

    def take_back(self, rows: Sequence[Message]) -> None:
        """Withdraw what the model has shown since the last committed row, since it begins its turn again."""
        self._rewind(self.kept_last(rows), rows)

    def begin_anew(self, rows: Sequence[Message], said: Sequence[Payload]) -> None:
        """Replace all frames since the last committed row by a few that say the same."""
        self.take_back(rows)
        for payload in said:
            self.writer.write(payload)

    def status(self, status: str, **fields: Any) -> None:
        self.writer.write(event_payload(FrameEvent.STATUS, {"status": status, **fields}))

    def leave(self) -> StreamWriter:
        """Give the writer away, since the run writes no more. The caller must release it."""
        self._shut_all()
        return self.writer

    def _shut_all(self) -> None:
        for call_id in list(self._sinks):
            self._shut(call_id)

    def _shut(self, call_id: str | None) -> None:
        if sink := self._sinks.pop(call_id, None):
            sink.shut()

    def _is_gone(self) -> bool:
        """Whether this worker takes the run over and did not find its stream: readers may have had any number of
        frames.
        """
        return self._is_takeover and self.writer.is_made_anew

    async def _is_other_redis(self) -> bool:
        """Called after the stream was opened: a restart before that shows here, a later one in the writer's answers.

        A restart may lose frames that readers have seen, and their numbers must not be given again.
        """
        try:
            return await self._services.frame_server.ask() != self._redis_run_id
        except StoreUnavailable:
            return True

    def _rewind(self, kept: int, rows: Sequence[Message]) -> int:
        REWINDS.inc()
        length = len(committed_text(rows, self._held.invocation_id))
        return self.writer.write(event_payload(FrameEvent.REWIND, {"toSeq": kept, "length": length}))


def _rows_from(rows: Sequence[Message], last_frame: int) -> Sequence[Message]:
    """The rows from the answer that ends with this frame. If Redis has no later frame, they are not announced yet."""
    return next((rows[at:] for at, row in enumerate(rows) if row.last_frame == last_frame), [])


class Sink:
    """How `ctx.stream` writes into the stream, from any thread; shut when the call has its result."""

    def __init__(self, writer: StreamWriter, call_id: str | None) -> None:
        self._writer = writer
        self._call_id = call_id
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._open = True

    def output(self, text: str) -> None:
        self._write(event_payload(FrameEvent.OUTPUT, {"id": self._call_id, "text": text}))

    def event(self, name: str, data: Any) -> None:
        self._write(event_payload(name, data))

    def shut(self) -> None:
        self._open = False

    def _write(self, payload: Payload) -> None:
        self._in_order(self._writer.write, payload)

    def _in_order(self, act: Callable[[T], object], given: T) -> None:
        """Run `act` on the event loop, and only while the sink is open."""
        if threading.get_ident() == self._thread:
            self._if_open(act, given)
        elif not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._if_open, act, given)

    def _if_open(self, act: Callable[[T], object], given: T) -> None:
        if self._open:
            act(given)
