"""The turns of a function's run: the first asks for its call, the second has the text that it wrote.

Its transcript: the arguments as JSON text, the call, its `Outcome`, and the text if there is any.
"""

from collections.abc import Sequence

import orjson

from runyard.authoring.functions import Function
from runyard.blocks import Block, text_of
from runyard.db.claims import Claim
from runyard.db.records import Message
from runyard.db.transcripts import AssistantTurn
from runyard.errors import FunctionEnded
from runyard.lifecycle.creating import ZERO_COST
from runyard.runs import FinishReason
from runyard_workers.functions.call import FunctionCall, function_call
from runyard_workers.functions.outcome import Outcome
from runyard_workers.functions.output import FunctionOutput
from runyard_workers.progress import Progress
from runyard_workers.providers.model import Usage
from runyard_workers.services import Services
from runyard_workers.steps import Step


class FunctionSteps:
    """Stands in for a model. `tool`: what its first turn asks for. Its turns cost nothing and are no steps."""

    def __init__(
        self, services: Services, claim: Claim, function: Function[..., object], output: FunctionOutput
    ) -> None:
        self.progress = Progress.stored(claim.run, claim.invocation)
        self.tool: FunctionCall = function_call(function, output, services.threads)
        self._call_id = f"call_{claim.invocation.id}"
        self._output = output

    def stop(self) -> None:
        """Nothing to stop: its turns take no time, and a running call learns of the cancel from its context."""

    async def call(self, rows: Sequence[Message]) -> Step:
        """The turn that follows these rows.

        Raises:
            FunctionEnded: the call ended without a value.
        """
        if (outcome := _outcome(rows)) is None:
            return Step(turn=self._asking(rows))
        if outcome.error is not None:
            raise FunctionEnded(outcome.error)
        turn = self._saying(rows, outcome.text, FinishReason.END_TURN)
        return Step(turn=await self._output.flushed(turn, rows), result_fields={"output": outcome.output})

    def unsaid(self, rows: Sequence[Message]) -> AssistantTurn | None:
        """What the function had written until it was cancelled."""
        outcome = _outcome(rows)
        if outcome is None:
            return None
        text = outcome.text if self._output.answer is None else self._output.answer.text
        return self._saying(rows, text, FinishReason.CANCELLED)

    def is_ending(self, rows: Sequence[Message]) -> bool:
        return _outcome(rows) is not None

    def _asking(self, rows: Sequence[Message]) -> AssistantTurn:
        last = self._output.writer.last
        block: Block = {
            "type": "tool_use",
            "id": self._call_id,
            "name": self.tool.name,
            "input": orjson.loads(text_of(rows[-1].content)),
        }
        return _turn(rows, [block], FinishReason.TOOL_USE, first_frame=last + 1, last_frame=last)

    def _saying(self, rows: Sequence[Message], text: str, stop_reason: FinishReason) -> AssistantTurn:
        """A turn with this text, which must be in the stream: a worker that took the run over has
        withdrawn it there.
        """
        writer = self._output.writer
        first_frame = writer.last + 1
        if self._output.answer is not None:
            first_frame = self._output.answer.first_frame
        elif text:
            self._output.say(text)
        content = [{"type": "text", "text": text}] if text else []
        return _turn(rows, content, stop_reason, first_frame=first_frame, last_frame=writer.last)


def _outcome(rows: Sequence[Message]) -> Outcome | None:
    """None: the function has not been called."""
    last = rows[-1].content
    results = [block for block in last if block["type"] == "tool_result"] if isinstance(last, list) else []
    return Outcome.of(results[0]) if results else None


def _turn(
    rows: Sequence[Message], content: list[Block], stop_reason: FinishReason, *, first_frame: int, last_frame: int
) -> AssistantTurn:
    return AssistantTurn(
        seq=rows[-1].seq + 1,
        content=content,
        model=None,
        usage=Usage().to_dict(),
        cost=ZERO_COST,
        stop_reason=stop_reason,
        duration_ms=0,
        first_frame=first_frame,
        last_frame=last_frame,
    )
