"""What a run has left behind, as a test sees it."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import orjson

from runyard.blocks import Content, tool_uses
from runyard.db.records import Invocation, Message, Run
from runyard.frames import Frame, FrameEvent, answer_text
from runyard.ids import InvocationId, RunId, StreamId
from runyard.runs import RunStatus


class SeenFrame(NamedTuple):
    """A frame as a reader gets it. `event` is "" for answer text. `data` is a string for text and thinking, else
    decoded JSON.
    """

    seq: int
    event: str
    data: Any


@dataclass(frozen=True, kw_only=True)
class ToolCall:
    """A call as the transcript has it. `result`: what the model was told; None: nothing yet."""

    id: str
    name: str
    input: Any
    result: Content | None
    is_error: bool


@dataclass(frozen=True, kw_only=True)
class RunResult:
    """One invocation and its run, as they are when the invocation has ended."""

    run: Run
    invocation: Invocation
    rows: Sequence[Message]
    """The run's whole transcript."""

    stored_frames: Sequence[Frame]

    @property
    def run_id(self) -> RunId:
        return self.run.id

    @property
    def session_id(self) -> str | None:
        return self.run.session_id

    @property
    def invocation_id(self) -> InvocationId:
        return self.invocation.id

    @property
    def stream_id(self) -> StreamId:
        return self.invocation.stream_id

    @property
    def status(self) -> RunStatus:
        return self.invocation.status

    @property
    def result(self) -> dict[str, Any]:
        """The result, as the HTTP API answers it."""
        return self.invocation.result or {}

    @property
    def text(self) -> str:
        """The model's last answer; for a function, all that it wrote."""
        text: str = self.result.get("text", "")
        return text

    @property
    def output(self) -> Any:
        """What a function returned."""
        return self.result.get("output")

    @property
    def error(self) -> dict[str, Any] | None:
        """Why the run failed, `{"code": "AGENT_MAX_STEPS", "message": "...", ...}`; None if it did not."""
        return self.invocation.error

    @property
    def finish_reason(self) -> str | None:
        return self.result.get("finishReason")

    @property
    def model(self) -> str | None:
        """The model that gave the last answer."""
        return self.result.get("model")

    @property
    def steps(self) -> int:
        return self.invocation.steps

    @property
    def messages(self) -> list[dict[str, Any]]:
        """The run's whole transcript in the Messages API's form."""
        return [{"role": row.role, "content": row.content} for row in self.rows]

    @cached_property
    def calls(self) -> list[ToolCall]:
        """The tool calls of this invocation, in the order in which the model asked for them."""
        results = {
            block["tool_use_id"]: block
            for row in self.rows
            if row.role == "user" and not isinstance(row.content, str)
            for block in row.content
            if block["type"] == "tool_result"
        }
        asked = [
            block
            for row in self.rows
            if row.role == "assistant" and row.invocation_id == self.invocation.id
            for block in tool_uses(row.content)
        ]
        return [_call(block, results.get(block["id"])) for block in asked]

    @cached_property
    def frames(self) -> list[SeenFrame]:
        """All that a reader of this invocation got, including what was withdrawn."""
        return [seen(frame) for frame in self.stored_frames]

    def events(self, name: str) -> list[Any]:
        """The data of the frames with this event: `result.events("progress")`."""
        return [frame.data for frame in self.frames if frame.event == name]

    @property
    def shown(self) -> str:
        """The answer text that a reader has in the end, without what was withdrawn."""
        pieces: list[tuple[int, str]] = []
        for frame in self.stored_frames:
            if frame.event == FrameEvent.REWIND:
                to_seq = orjson.loads(frame.data)["toSeq"]
                pieces = [piece for piece in pieces if piece[0] <= to_seq]
            elif (text := answer_text(frame.event, frame.data)) is not None:
                pieces.append((frame.seq, text))
        return "".join(text for _, text in pieces)


def seen(frame: Frame) -> SeenFrame:
    if (text := answer_text(frame.event, frame.data)) is not None:
        return SeenFrame(frame.seq, "", text)
    if frame.event == FrameEvent.THINKING:
        return SeenFrame(frame.seq, str(frame.event), frame.data.decode())
    return SeenFrame(frame.seq, str(frame.event), orjson.loads(frame.data))


def _call(block: dict[str, Any], result: dict[str, Any] | None) -> ToolCall:
    told = None if result is None else result.get("content", "")
    is_error = result is not None and result.get("is_error", False)
    return ToolCall(id=block["id"], name=block["name"], input=block["input"], result=told, is_error=is_error)
