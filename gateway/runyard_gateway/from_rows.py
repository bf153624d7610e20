"""A stream made from rows, for readers whose frames are gone: the committed text, then the terminal frame."""

from runyard.db.engine import Database
from runyard.db.reads import committed_answer
from runyard.db.records import Invocation
from runyard.frames import Frame, FrameEvent, event_payload, text_payload
from runyard.lifecycle.endings import WITHDRAW_ALL
from runyard.terminal import terminal_payload

_WITHDRAWAL = Frame(0, *WITHDRAW_ALL)
"""It has no number, since it is not a frame of the stream: it resets the reader's text."""


async def settled_frames(database: Database, invocation: Invocation) -> list[Frame]:
    """The whole text of a settled invocation and its terminal frame, for a reader who may have seen any part of it.

    The terminal frame has the number that it has in the stream.
    """
    assert invocation.result is not None, "a settled invocation has its result"
    text, _ = await database.read(committed_answer, invocation.run_id, invocation.id)
    last, base = invocation.last_frame or 0, invocation.frame_base or 0
    if base > last:  # it was closed by a reset, whose rewind has the number `base`, and whose text has the next one
        last = base + bool(text)
    terminal = terminal_payload(result=invocation.result, error=invocation.error, request_id=invocation.request_id)
    return [*_whole(text, last), Frame(last + invocation.rows_at_its_end + 1, *terminal)]


async def committed_frames(database: Database, invocation: Invocation) -> tuple[int, list[Frame]]:
    """The number of the last frame whose text is in the rows; and frames with that text."""
    text, last = await database.read(committed_answer, invocation.run_id, invocation.id)
    return last, _whole(text, last)


def trimmed_frame(invocation: Invocation, *, from_seq: int, to_seq: int) -> Frame:
    """Tells the reader that these frames are gone. It has the number of the last of them."""
    data = {"status": invocation.status, "trimmed": {"fromSeq": from_seq, "toSeq": to_seq}}
    return Frame(to_seq, *event_payload(FrameEvent.STATUS, data))


def _whole(text: str, seq: int) -> list[Frame]:
    return [_WITHDRAWAL, Frame(seq, *text_payload(text))] if text else [_WITHDRAWAL]
