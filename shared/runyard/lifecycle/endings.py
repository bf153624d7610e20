"""The frames that close the stream of a settled invocation, made from its rows."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from runyard.blocks import text_of
from runyard.db.boundaries import Settlement
from runyard.db.records import Invocation, Message
from runyard.frames import FrameEvent, Payload, event_payload, text_payload
from runyard.ids import InvocationId, RunId, StreamId
from runyard.streams.ops import Close
from runyard.terminal import terminal_payload

RESET_DISTANCE = 1_000_000
"""A reset's numbers begin this far above the highest known one, out of reach of any cursor from before."""

WITHDRAW_ALL = event_payload(FrameEvent.REWIND, {"toSeq": 0, "length": 0})


@dataclass(frozen=True, kw_only=True, slots=True)
class Ending:
    """A settled invocation, as far as the end of its stream needs it.

    `text`: the answer text in its rows. `appended`: the rows that its settlement added, which no frame has announced
    yet. `redis_run_id`: the Redis process to which its frames were written; None: no worker had begun it.
    """

    run_id: RunId
    invocation_id: InvocationId
    stream_id: StreamId
    request_id: str
    redis_run_id: str | None
    result: dict[str, Any]
    error: dict[str, Any] | None
    last_frame: int
    appended: tuple[Message, ...]
    text: str

    def frames(self) -> list[Payload]:
        """The frames that close the stream."""
        return [
            *(event_payload(FrameEvent.MESSAGE, {"seq": row.seq, "role": row.role}) for row in self.appended),
            terminal_payload(result=self.result, error=self.error, request_id=self.request_id),
        ]

    def close(self, *, base: int = 0) -> Close:
        """The operation that closes the stream. `base`: first reset the stream, to begin anew at this number, since
        Redis has fewer frames than were committed.
        """
        return Close(
            stream_id=self.stream_id,
            settled_last=self.last_frame,
            frames=self.frames(),
            rewind=event_payload(FrameEvent.REWIND, {"toSeq": self.last_frame, "length": len(self.text)}),
            base=base,
            base_frames=whole_text(self.text) if base else (),
        )


def ending(
    invocation: Invocation, settlement: Settlement, rows: Sequence[Message], *, appended: Sequence[Message]
) -> Ending:
    """`rows`: the whole transcript after the settlement; `appended`: those of its rows that the settlement added."""
    return Ending(
        run_id=invocation.run_id,
        invocation_id=invocation.id,
        stream_id=invocation.stream_id,
        request_id=invocation.request_id,
        redis_run_id=invocation.redis_run_id,
        result=settlement.result,
        error=settlement.error,
        last_frame=settlement.last_frame,
        appended=tuple(appended),
        text=committed_text(rows, invocation.id),
    )


def stored_ending(invocation: Invocation, rows: Sequence[Message]) -> Ending:
    """The ending of an invocation that was settled before, from its row and the run's transcript."""
    assert invocation.result is not None
    assert invocation.last_frame is not None
    assert invocation.last_seq is not None
    told = range(invocation.last_seq - invocation.rows_at_its_end + 1, invocation.last_seq + 1)
    return Ending(
        run_id=invocation.run_id,
        invocation_id=invocation.id,
        stream_id=invocation.stream_id,
        request_id=invocation.request_id,
        redis_run_id=invocation.redis_run_id,
        result=invocation.result,
        error=invocation.error,
        last_frame=invocation.last_frame,
        appended=tuple(row for row in rows if row.seq in told),
        text=committed_text(rows, invocation.id),
    )


def whole_text(text: str) -> list[Payload]:
    """The first frames of a reset: one withdraws everything, the next has the committed text."""
    return [WITHDRAW_ALL, text_payload(text)] if text else [WITHDRAW_ALL]


def committed_text(rows: Sequence[Message], invocation_id: InvocationId) -> str:
    """The answer text in an invocation's rows, which a reader must have after all rewinds."""
    return "".join(text_of(row.content) for row in own_answers(rows, invocation_id))


def kept_last(rows: Sequence[Message], invocation_id: InvocationId, *, base: int, sent: int) -> int:
    """The number of the last frame that stays. Later frames have to be withdrawn.

    `base`: where the stream was reset, 0 if it was not; the frame after it is the committed text. `sent`: the last
    frame at a hand-over, 0 if there was none.
    """
    base_end = base + 1 if base and committed_text(rows, invocation_id) else base
    return max([base_end, sent, *(row.last_frame or 0 for row in own_answers(rows, invocation_id))])


def own_answers(rows: Sequence[Message], invocation_id: InvocationId) -> list[Message]:
    return [row for row in rows if row.role == "assistant" and row.invocation_id == invocation_id]
