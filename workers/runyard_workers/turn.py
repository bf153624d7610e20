"""One model call. Its events become frames as they come; at its end there is a turn to be stored."""

import asyncio
import contextlib
import math
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from runyard.errors import GenerationLost, RunTimeout, RunyardError
from runyard.frames import Payload
from runyard_workers.providers.failures import dead_connection
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
from runyard_workers.shown import Shown
from runyard_workers.stream_writer import StreamWriter

SLACK = 1 / 16
"""Moving a timer costs more than everything else that is done for an event, so it is moved by this part of its time at
once."""

DEAD_AFTER_S = 60.0
"""A provider that works sends something all the time, at least pings: after this silence its connection is dead."""

CHARS_A_TOKEN = 4
"""A rough rule for English, for what a call has produced since its provider last counted."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StreamedTurn:
    """`first_frame` is the number that the call's first frame got, or would have got. `first_at`: when the model
    produced its first text or thought, by the monotonic clock; None: it produced none.
    """

    turn: Turn
    first_at: float | None
    first_frame: int
    last_frame: int
    duration_ms: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Spent:
    """What an unfinished call has cost: as far as its provider counted, and estimated from there."""

    model: str
    usage: Usage


class ModelCall:
    """`on_long`: see `Shown`. `reset` begins the stream anew with what is committed. `shown` is what remains of a call
    that fails or is stopped.
    """

    def __init__(
        self,
        provider: Provider,
        request: ModelRequest,
        writer: StreamWriter,
        *,
        stream_thinking: bool,
        silence_s: float,
        on_long: Callable[[Sequence[Payload]], None],
        reset: Callable[[], Awaitable[None]],
    ) -> None:
        self._provider = provider
        self._request = request
        self.shown = Shown(writer, on_long)
        self._writer = writer
        self._reset = reset
        self._resetting: asyncio.Task[None] | None = None
        self._stream_thinking = stream_thinking
        self._silence_s = silence_s
        self._counted: UsageSoFar | None = None
        self._uncounted_chars = 0
        self._began = time.monotonic()
        self._first_at: float | None = None

    @property
    def spent(self) -> Spent | None:
        """What a call that was broken off has cost; None: it had not begun to answer."""
        if self._counted is None and not self._uncounted_chars:
            return None
        usage, model = self._counted or UsageSoFar(Usage(), self._request.model)
        estimated = math.ceil(self._uncounted_chars / CHARS_A_TOKEN)
        return Spent(model=model, usage=usage + Usage(output_tokens=estimated, output_tokens_estimated=estimated))

    @property
    def first_after_s(self) -> float | None:
        """How long after the call began the model produced its first text or thought; None: it has produced none."""
        return None if self._first_at is None else self._first_at - self._began

    @property
    def duration_ms(self) -> int:
        return int((time.monotonic() - self._began) * 1000)

    async def run(self) -> StreamedTurn:
        """Call the model and stream what it says. If Redis loses frames meanwhile, they are written again at once.

        Raises:
            ProviderError, ModelNotConfigured: see `Provider.stream`; also if no byte came for `DEAD_AFTER_S`.
            RunTimeout: for `silence_s`, or up to 1/16 longer, nothing showed that the model works. A connection that is
                merely kept open does not count.
        """
        self._writer.on_forgotten = self._begin_reset
        if self._writer.is_forgotten:
            self._begin_reset()
        try:
            turn = await self._turn()
            if self._resetting is not None:
                await self._resetting
        finally:
            self._writer.on_forgotten = None
            if self._resetting is not None:
                self._resetting.cancel()
                await asyncio.wait([self._resetting])
        return StreamedTurn(
            turn=turn,
            first_at=self._first_at,
            first_frame=self.shown.first_frame,
            last_frame=self._writer.last,
            duration_ms=self.duration_ms,
        )

    def _begin_reset(self) -> None:
        self._resetting = asyncio.create_task(self._show_again())

    async def _show_again(self) -> None:
        with contextlib.suppress(GenerationLost):  # the commit of the turn meets it too
            await self._reset()
            self.shown.show_again()

    async def _turn(self) -> Turn:
        now = asyncio.get_running_loop().time
        turn: Turn | None = None
        slack_s = min(self._silence_s, DEAD_AFTER_S) * SLACK
        silent_at = now() + self._silence_s
        fires_at = min(silent_at, now() + DEAD_AFTER_S) + slack_s
        try:
            async with (
                asyncio.timeout_at(fires_at) as limit,
                contextlib.aclosing(self._provider.stream(self._request)) as events,
            ):
                async for event in events:
                    if isinstance(event, Turn):
                        turn = event
                    came_at = now()
                    if self._shows_work(event):
                        silent_at = came_at + self._silence_s
                    until = min(silent_at, came_at + DEAD_AFTER_S)
                    if until >= fires_at:
                        fires_at = until + slack_s
                        limit.reschedule(fires_at)
        except TimeoutError:
            if not limit.expired():
                raise
            raise self._silent(is_dead=now() < silent_at) from None
        assert turn is not None, "a provider's stream ends with a turn or an error"
        return turn

    def _silent(self, *, is_dead: bool) -> RunyardError:
        if is_dead:
            return dead_connection(DEAD_AFTER_S)
        return RunTimeout(f"the model was silent for {self._silence_s:g} s")

    def _shows_work(self, event: ModelEvent) -> bool:
        match event:
            case TextDelta(text):
                self._first_at = self._first_at or time.monotonic()
                self._uncounted_chars += len(text)
                self.shown.text(text)
            case ThinkingDelta(text):
                self._first_at = self._first_at or time.monotonic()
                self._uncounted_chars += len(text)
                if self._stream_thinking:
                    self.shown.thinking(text)
            case UsageSoFar():
                self._counted = event
                self._uncounted_chars = 0
            case Activity(ping):
                return not ping
        return True
