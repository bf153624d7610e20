"""Short ways to write operations on frames, and to read their results."""

from typing import Protocol

from runyard.frames import Frame, Payload, event_payload, text_payload
from runyard.streams.memory import MemoryFrames
from runyard.streams.ops import Answer, Append, Close, Op, Open, Reset
from runyard.streams.store import FrameStore

SID = "st_1"
RESULT = event_payload("result", {"status": "completed"})
MESSAGE = event_payload("message", {"seq": 2, "role": "assistant"})
REWIND = event_payload("rewind", {"toSeq": 2, "length": 2})
REWIND_ALL = event_payload("rewind", {"toSeq": 0, "length": 0})

Store = FrameStore | MemoryFrames


class NewStore(Protocol):
    """Opens another one with limits of its own, on the same place."""

    def __call__(self, *, max_bytes: int = ..., max_streams: int = ...) -> Store: ...


def texts(*words: str) -> list[Payload]:
    return [text_payload(word) for word in words]


def opened(generation: int = 1, stream_id: str = SID) -> Open:
    return Open(stream_id=stream_id, generation=generation)


def append(first: int, *words: str, generation: int = 1, stream_id: str = SID) -> Append:
    return Append(stream_id=stream_id, generation=generation, first=first, frames=texts(*words))


def close(settled_last: int, *, rewind: Payload | None = REWIND, base: int = 0) -> Close:
    frames = [MESSAGE, RESULT]
    base_frames = [REWIND_ALL, text_payload("ab")]
    return Close(
        stream_id=SID, settled_last=settled_last, frames=frames, rewind=rewind, base=base, base_frames=base_frames
    )


def reset(base: int, *words: str, generation: int = 1) -> Reset:
    return Reset(stream_id=SID, generation=generation, base=base, frames=[REWIND_ALL, *texts(*words)])


def numbered(first: int, *payloads: Payload) -> list[Frame]:
    return [Frame(seq, *payload) for seq, payload in enumerate(payloads, first)]


async def one(store: Store, op: Op) -> Answer:
    (answer,) = await store.apply([op])
    return answer
