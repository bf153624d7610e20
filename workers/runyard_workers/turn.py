"""One model call: its events become frames as they come, its end a turn ready to be stored."""

import asyncio
import contextlib
import time
from dataclasses import dataclass

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
    UsageSoFar,
)

SILENCE_SLACK = 1 / 16
"""Moving a timer costs more than all else that is done for an event: it is moved this part of its time at once."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StreamedTurn:
    """`first_frame` is the number that the call's first frame got, or would have got."""

    turn: Turn
    first_frame: int
    last_frame: int
    duration_ms: int


class ModelCall:
    """`spent` is what the call has cost so far, `said` the answer text: both count also when it fails or is stopped."""

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
        self.spent: UsageSoFar | None = None
        self.said: list[str] = []

    async def run(self) -> StreamedTurn:
        """Call the model and stream what it says.

        Raises:
            ProviderError, ModelNotConfigured: see `Provider.stream`.
            RunTimeout: nothing showed for `silence_s`, or up to 1/16 longer, that the model works; a connection that
                is merely kept open does not count.
        """
        loop = asyncio.get_running_loop()
        began = time.monotonic()
        timed_from, slack_s = loop.time(), self._silence_s * SILENCE_SLACK
        first_frame = self._writer.last + 1
        turn: Turn | None = None
        try:
            async with (
                asyncio.timeout(self._silence_s + slack_s) as silence,
                contextlib.aclosing(self._provider.stream(self._request)) as events,
            ):
                async for event in events:
                    if isinstance(event, Turn):
                        turn = event
                    if self._shows_work(event) and loop.time() - timed_from >= slack_s:
                        timed_from = loop.time()
                        silence.reschedule(timed_from + self._silence_s + slack_s)
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

    def _shows_work(self, event: ModelEvent) -> bool:
        match event:
            case TextDelta(text):
                self.said.append(text)
                self._writer.write(text_payload(text))
            case ThinkingDelta(text):
                if self._stream_thinking:
                    self._writer.write(thinking_payload(text))
            case UsageSoFar():
                self.spent = event
            case Activity(ping):
                return not ping
        return True
