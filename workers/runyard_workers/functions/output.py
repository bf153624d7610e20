"""A function's frames: what it writes is the answer's text, and its one call is not reported as a tool's."""

import threading
from collections.abc import Sequence

from runyard.blocks import Block
from runyard.db.records import Message
from runyard.frames import FrameEvent, Payload, event_payload, text_payload
from runyard_workers.output import Output, Sink
from runyard_workers.shown import Shown
from runyard_workers.stream_writer import StreamWriter

TEXT_LIMIT_BYTES = 1_048_576
"""Of everything that a function writes: it is stored with the result."""


class FunctionOutput(Output):
    """`answer`: the part of what the function has written that is in the stream; None: nothing."""

    answer: "AnswerSink | None" = None

    def tool_start(self, block: Block) -> None:
        pass

    def tool(self, block: Block, *, is_error: bool, duration_ms: int) -> None:  # noqa: ARG002 - its result tells it
        self._shut(block["id"])

    def sink(self, call_id: str | None) -> "AnswerSink":
        self._shut(call_id)
        self._sinks[call_id] = self.answer = AnswerSink(self.writer, call_id)
        return self.answer

    def say(self, text: str) -> None:
        """Write again what the function had written before this worker took its run over."""
        self.writer.write(text_payload(text))

    async def align(self, rows: Sequence[Message]) -> None:
        await super().align(rows)
        self.answer = None  # no row holds it yet: it was withdrawn


class AnswerSink(Sink):
    """`ctx.stream` of a function."""

    def __init__(self, writer: StreamWriter, call_id: str | None) -> None:
        super().__init__(writer, call_id)
        self._shown = Shown(writer, self._begin_anew)
        self._counting = threading.Lock()
        self._left_bytes = TEXT_LIMIT_BYTES

    @property
    def text(self) -> str:
        return "".join(self._shown.said)

    @property
    def first_frame(self) -> int:
        return self._shown.first_frame

    def output(self, text: str) -> None:
        """Show text that the function has written.

        Raises:
            ValueError: it has written too much.
        """
        size_bytes = len(text.encode())
        with self._counting:
            if size_bytes > self._left_bytes:
                raise ValueError(f"a function may write {TEXT_LIMIT_BYTES:,} bytes of text")
            self._left_bytes -= size_bytes
        self._in_order(self._shown.text, text)

    def _begin_anew(self, said: Sequence[Payload]) -> None:
        self._writer.write(event_payload(FrameEvent.REWIND, {"toSeq": self.first_frame - 1, "length": 0}))
        for payload in said:
            self._writer.write(payload)
