"""Replays the kept frames of a stream as a reader does: the text after each `rewind`, and the numbers."""

from typing import NamedTuple

import orjson

from runyard.frames import Frame, FrameEvent, answer_text


class _Piece(NamedTuple):
    seq: int
    text: str


class Hole(NamedTuple):
    """No frame exists between these two."""

    after: int
    before: int


class MisfitRewind(NamedTuple):
    """A rewind that names another length of remaining text than the reader has."""

    seq: int
    told: int
    left: int


class Replay:
    """Keeps only the answer's text, the last frame, and the faults."""

    def __init__(self) -> None:
        self.first = 0
        """The number of the first frame that was read; 0: there was none."""
        self.last: Frame | None = None
        self.terminals: list[int] = []
        self.holes: list[Hole] = []
        self.misfits: list[MisfitRewind] = []
        self.unreadable: list[int] = []
        self._pieces: list[_Piece] = []
        self._length = 0

    def feed(self, frame: Frame) -> None:
        if self.last is None:
            self.first = frame.seq
        elif frame.seq != self.last.seq + 1:
            self.holes.append(Hole(self.last.seq, frame.seq))
        self.last = frame
        if frame.is_terminal:
            self.terminals.append(frame.seq)
        try:
            self._take(frame)
        except (ValueError, KeyError, TypeError):
            self.unreadable.append(frame.seq)

    def text(self, *, since: int = 0, until: int | None = None) -> str:
        """The text that frames with these numbers, both included, have left."""
        return "".join(
            piece.text for piece in self._pieces if piece.seq >= since and (until is None or piece.seq <= until)
        )

    def _take(self, frame: Frame) -> None:
        if frame.event == FrameEvent.REWIND:
            rewind = orjson.loads(frame.data)
            self._rewind(frame.seq, rewind["toSeq"], rewind["length"])
        elif (text := answer_text(frame.event, frame.data)) is not None:
            self._pieces.append(_Piece(frame.seq, text))
            self._length += len(text)

    def _rewind(self, seq: int, to_seq: int, length: int) -> None:
        while self._pieces and self._pieces[-1].seq > to_seq:
            self._length -= len(self._pieces.pop().text)
        if self._length != length:
            self.misfits.append(MisfitRewind(seq, length, self._length))
