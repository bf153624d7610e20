"""A stream made from its rows, for readers whose frames are gone: the committed text, then the terminal frame."""

from runyard.db.engine import Database
from runyard.db.reads import answer_texts
from runyard.db.records import Invocation
from runyard.frames import Frame, FrameEvent, event_payload, text_payload
from runyard.outcomes import terminal_payload

WITHDRAW_ALL = Frame(0, *event_payload(FrameEvent.REWIND, {"toSeq": 0, "length": 0}))
"""Un-numbered: it speaks of the reader's text, not of a place in the stream."""

FRAMES_AFTER_SETTLEMENT = 2  # the last `message` frame and the terminal frame


async def settled_frames(database: Database, invocation: Invocation) -> list[Frame]:
    """All that a settled invocation has to say, whatever the reader has seen of it.

    The last frame is the terminal one, with the number that it has in the stream.
    """
    assert invocation.result is not None, "a settled invocation has its result"
    text = await _committed_text(database, invocation)
    last, base = invocation.last_frame or 0, invocation.frame_base or 0
    if base > last:  # frames were lost, it was closed by a reset: the rewind has the base's number, the text the next
        last = base + bool(text)
    terminal = terminal_payload(result=invocation.result, error=invocation.error, request_id=invocation.request_id)
    return [*_whole(text, last), Frame(last + FRAMES_AFTER_SETTLEMENT, *terminal)]


async def committed_frames(database: Database, invocation: Invocation, seq: int) -> list[Frame]:
    """The text that the rows hold, as one frame with that number."""
    return _whole(await _committed_text(database, invocation), seq)


async def _committed_text(database: Database, invocation: Invocation) -> str:
    return "".join(await database.read(answer_texts, invocation.run_id, invocation.id))


def _whole(text: str, seq: int) -> list[Frame]:
    return [WITHDRAW_ALL, Frame(seq, *text_payload(text))] if text else [WITHDRAW_ALL]
