"""One model call: its events become frames as they come, its end a turn ready to be stored."""

import asyncio
import contextlib
import math
import time
from dataclasses import dataclass, replace

from runyard.errors import RunTimeout
from runyard.frames import text_payload, thinking_payload
from runyard_workers.flusher import StreamWriter
from runyard_workers.providers.model import (
    Activity,
    ModelEvent,
    ModelRequest,
    Provider,
    TextDelta,
    ThinkingDelta,
    Turn,
    Usage,
    UsageSoFar,
)

CHARS_A_TOKEN = 4
"""A rough rule for English, for what a call has produced since its provider counted last."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StreamedTurn:
    """`first_frame` is the number that the call's first frame got, or would have got."""

    turn: Turn
    first_frame: int
    last_frame: int
    duration_ms: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Spent:
    """What a call that did not end has cost. `estimated_tokens` of the output were not counted by the provider."""

    model: str
    usage: Usage
    estimated_tokens: int


class ModelCall:
    """`said` is the answer text so far. It counts, and what was spent, also when the call fails or is stopped."""

    def __init__(
        self,
        provider: Provider,
        request: ModelRequest,
        writer: StreamWriter,
        *,
        stream_thinking: bool,
        silence_s: float,
    ) -> None:
        self._provider = provider
        self._request = request
        self._writer = writer
        self._stream_thinking = stream_thinking
        self._silence_s = silence_s
        self.said: list[str] = []
        self._counted: UsageSoFar | None = None
        self._uncounted_chars = 0

    async def run(self) -> StreamedTurn:
        """Call the model and stream what it says.

        Raises:
            ProviderError, ModelNotConfigured: see `Provider.stream`.
            RunTimeout: nothing showed for `silence_s` that the model works; a connection that is merely kept open does
                not count.
        """
        loop = asyncio.get_running_loop()
        began = time.monotonic()
        first_frame = self._writer.last + 1
        turn: Turn | None = None
        try:
            async with (
                asyncio.timeout(self._silence_s) as silence,
                contextlib.aclosing(self._provider.stream(self._request)) as events,
            ):
                async for event in events:
                    if isinstance(event, Turn):
                        turn = event
                    if self._shows_work(event):
                        silence.reschedule(loop.time() + self._silence_s)
        except TimeoutError:
            if not silence.expired():
                raise
            raise RunTimeout(f"the model was silent for {self._silence_s:g} s") from None
        assert turn is not None, "a provider's stream ends with a turn or an error"
        return StreamedTurn(
            turn=turn,
            first_frame=first_frame,
            last_frame=self._writer.last,
            duration_ms=int((time.monotonic() - began) * 1000),
        )

    def spent(self) -> Spent | None:
        """What a call that was broken off has cost; None: it had not begun to answer."""
        if self._counted is None and not self._uncounted_chars:
            return None
        usage, model = self._counted or UsageSoFar(Usage(), self._request.model)
        estimated = math.ceil(self._uncounted_chars / CHARS_A_TOKEN)
        usage = replace(usage, output_tokens=usage.output_tokens + estimated)
        return Spent(model=model, usage=usage, estimated_tokens=estimated)

    def _shows_work(self, event: ModelEvent) -> bool:
        match event:
            case TextDelta(text):
                self.said.append(text)
                self._uncounted_chars += len(text)
                self._writer.write(text_payload(text))
            case ThinkingDelta(text):
                self._uncounted_chars += len(text)
                if self._stream_thinking:
                    self._writer.write(thinking_payload(text))
            case UsageSoFar():
                self._counted = event
                self._uncounted_chars = 0
            case Activity(ping):
                return not ping
        return True
