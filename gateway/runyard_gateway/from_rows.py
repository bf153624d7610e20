"""A stream made from its rows, for readers whose frames are gone: the committed text, then the terminal frame."""

from runyard.db.engine import Database
from runyard.db.reads import answer_texts
from runyard.db.records import Invocation
from runyard.frames import Frame, FrameEvent, event_payload, text_payload
from runyard.outcomes import terminal_payload

WITHDRAW_ALL = Frame(0, *event_payload(FrameEvent.REWIND, {"toSeq": 0, "length": 0}))
"""Un-numbered: it speaks of the reader's text, not of a place in the stream."""

FRAMES_AFTER_SETTLEMENT = 2  # the last `message` frame and the terminal frame


def terminal_seq(invocation: Invocation) -> int:
    """The number of a settled invocation's terminal frame, as its stream had it."""
    return (invocation.last_frame or 0) + FRAMES_AFTER_SETTLEMENT


async def settled_frames(database: Database, invocation: Invocation) -> list[Frame]:
    """All that a settled invocation has to say, whatever the reader has seen of it."""
    assert invocation.result is not None, "a settled invocation has its result"
    terminal = terminal_payload(result=invocation.result, error=invocation.error, request_id=invocation.request_id)
    return [
        *await committed_frames(database, invocation, invocation.last_frame or 0),
        Frame(terminal_seq(invocation), *terminal),
    ]


async def committed_frames(database: Database, invocation: Invocation, seq: int) -> list[Frame]:
    """The text that the rows hold, as one frame with that number."""
    text = "".join(await database.read(answer_texts, invocation.run_id, invocation.id))
    return [WITHDRAW_ALL, Frame(seq, *text_payload(text))] if text else [WITHDRAW_ALL]
