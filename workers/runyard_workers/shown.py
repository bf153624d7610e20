"""What one turn has shown its readers so far, so that it can be written again in a few frames."""

from collections.abc import Callable, Sequence

from runyard.frames import Payload, cost_bytes, text_payload, thinking_payload
from runyard_workers.stream_writer import StreamWriter


class Shown:
    """Counts what was written. Whenever that is half of the bytes that Redis keeps of a stream, `on_long` gets
    everything that was shown, in a few frames, and writes those in place of the many. So a reader that comes when the
    first frames are gone still gets a whole answer.

    After a reset of the stream, `show_again` does the same.

    `first_frame` is the number of the turn's first frame, `said` the answer text, `is_empty` whether no reader has seen
    anything of it.
    """

    def __init__(self, writer: StreamWriter, on_long: Callable[[Sequence[Payload]], None]) -> None:
        self.first_frame = writer.last + 1
        self.said: list[str] = []
        self.is_empty = True
        self._thought: list[str] = []
        self._writer = writer
        self._on_long = on_long
        self._share_bytes = writer.max_bytes // 2
        self._left_bytes = self._share_bytes

    def text(self, text: str) -> None:
        self.said.append(text)
        self._show(text_payload(text))

    def thinking(self, text: str) -> None:
        self._thought.append(text)
        self._show(thinking_payload(text))

    def show_again(self) -> None:
        """Write everything again: the stream has begun anew, and has none of it."""
        self.first_frame = self._writer.last + 1
        self._left_bytes = self._share_bytes
        for payload in self._in_few_frames():
            self._writer.write(payload)

    def _show(self, payload: Payload) -> None:
        self.is_empty = False
        self._left_bytes -= cost_bytes(*payload)
        if self._left_bytes < 0:
            self._left_bytes = self._share_bytes
            if self._begin_anew():
                return
        self._writer.write(payload)

    def _begin_anew(self) -> bool:
        """False: what was shown is too much to write again, so readers who come late will miss the beginning."""
        shown = self._in_few_frames()
        if sum(cost_bytes(*payload) for payload in shown) > self._share_bytes:
            return False
        self._on_long(shown)
        return True

    def _in_few_frames(self) -> list[Payload]:
        told = ((thinking_payload, self._thought), (text_payload, self.said))
        return [payload_of("".join(words)) for payload_of, words in told if words]
