"""What the reader of a stream has so far: ids, the last frame's number, the answer's text after every `rewind`."""

from dataclasses import dataclass, field

from runyard.client.answers import Result
from runyard.client.frames import Ended, Frame, Queued, Rewind, Text


@dataclass(kw_only=True, slots=True)
class Progress:
    stream_id: str | None = None
    run_id: str | None = None
    invocation_id: str | None = None
    cursor: int | None = None
    """The number of the last frame, after which to go on; None: from the beginning."""
    result: Result | None = None
    _pieces: list[tuple[int, str]] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "".join(piece for _, piece in self._pieces)

    def take(self, frame: Frame) -> None:
        """Take a frame into account."""
        if frame.seq is not None:
            self.cursor = frame.seq
        match frame:
            case Text(text=text):
                self._pieces.append((self.cursor or 0, text))
            case Rewind():
                self._withdraw(frame)
            case Queued(run_id=run_id):
                self.run_id = run_id
            case Ended(result=result):
                self.result = result
                self.run_id = result.run_id or self.run_id
                self.invocation_id = result.invocation_id or self.invocation_id

    def begin_anew(self) -> None:
        """Start from the beginning, where the gateway sends the whole text: the frames after the cursor are gone."""
        self.cursor = None
        self._pieces.clear()

    def _withdraw(self, rewind: Rewind) -> None:
        while self._pieces and (self._pieces[-1][0] > rewind.to_seq or not rewind.length):
            self._pieces.pop()
        if rewind.seq is None:
            # A gateway tells the whole text anew and begins with this. Until a number follows there is no place to go
            # on from: behind the old one, that text would be missing.
            self.cursor = None


class InHand:
    """The same, as read-only properties of a stream."""

    _progress: Progress

    @property
    def stream_id(self) -> str:
        """Known as soon as the call is answered, before the first frame.

        Raises:
            RuntimeError: the stream is not open yet.
        """
        if self._progress.stream_id is None:
            raise RuntimeError("the stream is not open yet: enter it with `async with`, or `await` it")
        return self._progress.stream_id

    @property
    def run_id(self) -> str | None:
        """None while a stream that was opened by its id alone has not ended."""
        return self._progress.run_id

    @property
    def invocation_id(self) -> str | None:
        """None: see `run_id`."""
        return self._progress.invocation_id

    @property
    def cursor(self) -> int | None:
        """The number of the last frame: another reader can go on after it with `since`."""
        return self._progress.cursor

    @property
    def text(self) -> str:
        """The answer's text so far, without what was withdrawn. At the end it equals the text in the transcript."""
        return self._progress.text

    @property
    def result(self) -> Result:
        """How the invocation ended.

        Raises:
            RuntimeError: the last frame has not been read yet.
        """
        if self._progress.result is None:
            raise RuntimeError("the stream has not ended yet: read it to its end, or `read()` it")
        return self._progress.result
