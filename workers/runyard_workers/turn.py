"""One model call: its events become frames as they come, its end a turn ready to be stored."""

import asyncio
import contextlib
import time
from dataclasses import dataclass

from runyard.errors import RunTimeout
from runyard.frames import text_payload, thinking_payload
from runyard_workers.flusher import StreamWriter
from runyard_workers.providers.model import ModelRequest, Provider, TextDelta, ThinkingDelta, Turn


@dataclass(frozen=True, kw_only=True, slots=True)
class StreamedTurn:
    """`first_frame` is the number that the call's first frame got, or would have got."""

    turn: Turn
    first_frame: int
    last_frame: int
    duration_ms: int


async def call_model(
    provider: Provider,
    request: ModelRequest,
    writer: StreamWriter,
    *,
    stream_thinking: bool,
    silence_s: float,
) -> StreamedTurn:
    """Call the model and stream what it says.

    Raises:
        ProviderError, ModelNotConfigured: see `Provider.stream`.
        RunTimeout: no event came for `silence_s`.
    """
    loop = asyncio.get_running_loop()
    began = time.monotonic()
    first_frame = writer.last + 1
    turn: Turn | None = None
    try:
        async with asyncio.timeout(silence_s) as silence, contextlib.aclosing(provider.stream(request)) as events:
            async for event in events:
                match event:
                    case TextDelta(text):
                        writer.write(text_payload(text))
                    case ThinkingDelta(text):
                        if stream_thinking:
                            writer.write(thinking_payload(text))
                    case Turn():
                        turn = event
                silence.reschedule(loop.time() + silence_s)
    except TimeoutError:
        if not silence.expired():
            raise
        raise RunTimeout(f"the model sent nothing for {silence_s:g} s") from None
    assert turn is not None, "a provider's stream ends with a turn or an error"
    return StreamedTurn(
        turn=turn,
        first_frame=first_frame,
        last_frame=writer.last,
        duration_ms=int((time.monotonic() - began) * 1000),
    )
