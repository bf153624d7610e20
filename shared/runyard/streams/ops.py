"""The operations of the frame script, and its answers. `frames.lua` implements them."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from runyard.frames import Payload

Argument = str | bytes | int


class Status(StrEnum):
    OK = "ok"
    MISSING = "missing"  # no such stream
    FENCED = "fenced"  # a higher generation has opened it
    GAP = "gap"  # the number is not the next one, or Redis forgot the generation
    CLOSED = "closed"  # its terminal frame is there
    BELOW = "below"  # Redis holds fewer frames than were committed


class Answer(NamedTuple):
    status: Status
    last: int
    """The highest number stored; 0: there is no stream."""
    created: bool = False
    """For `Open` only: the stream was not there. It means nothing once a call was sent twice."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Open:
    """Raise the stream's generation, never lower it; makes a missing stream.

    Answers: OK, FENCED, CLOSED.
    """

    stream_id: str
    generation: int

    def arguments(self) -> list[Argument]:
        return ["open", self.stream_id, self.generation]


@dataclass(frozen=True, kw_only=True, slots=True)
class Append:
    """Store frames `first`, `first + 1`, ... if the generation is equal and `first` is the next number.

    Answers: OK, MISSING, FENCED, GAP, CLOSED.
    """

    stream_id: str
    generation: int
    first: int
    frames: Sequence[Payload]

    def arguments(self) -> list[Argument]:
        return ["append", self.stream_id, self.generation, self.first, *_flat(self.frames)]


@dataclass(frozen=True, kw_only=True, slots=True)
class Touch:
    """Set the stream's time to live back to the whole retention.

    Answers: OK, MISSING, FENCED, GAP, CLOSED.
    """

    stream_id: str
    generation: int

    def arguments(self) -> list[Argument]:
        return ["touch", self.stream_id, self.generation]


@dataclass(frozen=True, kw_only=True, slots=True)
class Reset:
    """Drop what is kept; `frames` follow from number `base` on. Makes a missing stream, and raises the generation.

    Sent again with the same base and generation it changes nothing, and answers OK with the present last. Answers: OK,
    FENCED, CLOSED, GAP (`base` is not above the present last).
    """

    stream_id: str
    generation: int
    base: int
    frames: Sequence[Payload]

    def arguments(self) -> list[Argument]:
        return ["reset", self.stream_id, self.generation, self.base, *_flat(self.frames)]


@dataclass(frozen=True, kw_only=True, slots=True)
class Close:
    """End the stream. It needs no generation and numbers itself; the first one wins, later ones answer CLOSED.

    Send it only after the settlement is committed. `settled_last` is the highest frame number that the settlement knew.
    If Redis has more frames, `rewind` is written first. If it has fewer, or no stream although some were committed,
    nothing is written and the answer is BELOW: then commit a reset base, and send it again with `base` and
    `base_frames`. A `base` above the stream's own drops what is kept, and `base_frames`, then `frames`, follow from it,
    whatever Redis has. Pass a base at the first try if Redis' run id is not the one with which the invocation began.
    Answers: OK, CLOSED, BELOW (with a base: it is not above the present last).
    """

    stream_id: str
    settled_last: int
    frames: Sequence[Payload]
    """The last `message` frame and the terminal frame."""
    rewind: Payload | None = None
    base: int = 0
    base_frames: Sequence[Payload] = ()
    """The rewind to nothing, and one text frame with the committed text."""

    def arguments(self) -> list[Argument]:
        rewind = [self.rewind] if self.rewind else []
        return [
            "close",
            self.stream_id,
            self.settled_last,
            self.base,
            *_flat(rewind),
            *_flat(self.base_frames),
            *_flat(self.frames),
        ]


Op = Open | Append | Touch | Reset | Close


def _flat(frames: Sequence[Payload]) -> list[Argument]:
    flat: list[Argument] = [len(frames)]
    for event, data in frames:
        flat.append(event or "")
        flat.append(data)
    return flat
