"""Reads the body of one answer of the Messages API."""

from collections.abc import AsyncGenerator, AsyncIterable, Iterable

from runyard_workers.providers.accumulator import TurnAccumulator
from runyard_workers.providers.failures import cut_stream
from runyard_workers.providers.model import Activity, ModelEvent, Turn
from runyard_workers.providers.sse import EventSplitter

_ALIVE = Activity(ping=True)


async def read_turn(
    chunks: AsyncIterable[bytes], *, model: str, taken: Iterable[str] = ()
) -> AsyncGenerator[ModelEvent, None]:
    """The events of a stream, however its chunks are cut. Nothing is read beyond its last event, the turn.

    `model` is the name that was asked for; the turn has the one that answered. `taken`: see `TurnAccumulator`.

    Raises:
        ProviderError: the stream holds an error, is malformed, or ends early.
    """
    splitter = EventSplitter()
    turn = TurnAccumulator(model=model, taken=taken)
    async for chunk in chunks:
        received = splitter.feed(chunk)
        if not received:
            yield _ALIVE
        for event in received:
            shown = turn.feed(event)
            yield shown
            if isinstance(shown, Turn):
                return
    raise cut_stream()
