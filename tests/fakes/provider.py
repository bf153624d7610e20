"""A model that plays scripts. The number of its turns in the request decides which one."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from runyard_workers.providers.model import ModelEvent, ModelRequest, Provider, TextDelta, Turn, Usage

MODEL = "claude-sonnet-4-5"
"""One that genai-prices knows."""

Step = ModelEvent | Exception | asyncio.Event | Callable[[], Awaitable[None] | None]
"""An event is sent, an exception raised, an `asyncio.Event` awaited, a function called, and awaited if it is async."""

Script = Sequence[Step]


@dataclass(kw_only=True)
class ScriptedProvider(Provider):
    """The n-th turn of a run is scripts[n], also when it is asked for again: as deterministic as the demo model."""

    name = "scripted"
    scripts: Sequence[Script]
    requests: list[ModelRequest] = field(default_factory=list)
    open_streams: int = 0
    asked: asyncio.Event = field(default_factory=asyncio.Event)

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        self.requests.append(request)
        self.asked.set()
        turns = sum(message["role"] == "assistant" for message in request.messages)
        self.open_streams += 1
        try:
            for step in self.scripts[turns]:
                if isinstance(step, Exception):
                    raise step
                if isinstance(step, asyncio.Event):
                    await step.wait()
                elif callable(step):
                    if (awaitable := step()) is not None:
                        await awaitable
                else:
                    yield step
        finally:
            self.open_streams -= 1


class FakeProviders:
    """As `runyard_workers.providers.registry.Providers`: every name of a model leads to the one provider."""

    def __init__(self, provider: Provider) -> None:
        self._provider = provider

    def resolve(self, model: str | None) -> tuple[Provider, str]:
        return self._provider, model or MODEL


def turn(
    *content: dict[str, Any],
    stop_reason: str | None = None,
    usage: Usage | None = None,
    broken_inputs: Mapping[str, str] | None = None,
) -> Turn:
    asks = any(block["type"] == "tool_use" for block in content)
    return Turn(
        content=list(content),
        stop_reason=stop_reason or ("tool_use" if asks else "end_turn"),
        usage=usage or Usage(input_tokens=20, output_tokens=8),
        model=MODEL,
        broken_inputs=broken_inputs or {},
    )


def says(*deltas: str, **options: Any) -> list[Step]:
    """Deltas, then the turn that they make up."""
    return [*map(TextDelta, deltas), turn({"type": "text", "text": "".join(deltas)}, **options)]


def asks(*calls: dict[str, Any], saying: str = "", **options: Any) -> list[Step]:
    """A turn that asks for tools, with some text before."""
    if not saying:
        return [turn(*calls, **options)]
    return [TextDelta(saying), turn({"type": "text", "text": saying}, *calls, **options)]
