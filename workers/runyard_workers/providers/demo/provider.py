"""Streams what `composing.py` composed, as a model's API would."""

import asyncio
import re
from collections.abc import AsyncGenerator, Iterator
from itertools import cycle
from typing import Any

import orjson

from runyard_workers.providers.demo.composing import compose
from runyard_workers.providers.demo.thinking import check_thinking
from runyard_workers.providers.model import (
    DEMO_MODEL,
    Activity,
    ModelEvent,
    ModelRequest,
    TextDelta,
    ThinkingDelta,
    Turn,
    Usage,
    UsageSoFar,
)

_CHARACTERS_PER_TOKEN = 4
_WORDS_PER_CHUNK = (1, 2, 1, 3, 2)
_WORD = re.compile(r"\S*\s*")


class DemoProvider:
    """Answers for `runyard dev` without a key, and for authors' tests; the same request gets the same answer.

    `delay_ms` passes before each chunk, so that a reader sees it stream.
    """

    name = DEMO_MODEL

    def __init__(self, *, delay_ms: float = 15) -> None:
        self._delay_s = delay_ms / 1000

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        check_thinking(request.messages)
        sent = {"system": request.system, "messages": request.messages, "tools": request.tools}
        usage = Usage(input_tokens=_tokens(sent))
        yield UsageSoFar(usage, DEMO_MODEL)
        content = compose(request)
        for block in content:
            delta = ThinkingDelta if block["type"] == "thinking" else TextDelta
            for chunk in _chunks(block.get("thinking") or block.get("text") or ""):
                await asyncio.sleep(self._delay_s)
                yield delta(chunk)
            yield Activity(ping=False)
        yield Turn(
            content=content,
            stop_reason="tool_use" if content[-1]["type"] == "tool_use" else "end_turn",
            usage=usage + Usage(output_tokens=_tokens(content)),
            model=DEMO_MODEL,
            broken_inputs={},
        )


def _chunks(text: str) -> Iterator[str]:
    words = [word for word in _WORD.findall(text) if word]
    position = 0
    for count in cycle(_WORDS_PER_CHUNK):
        if position >= len(words):
            return
        yield "".join(words[position : position + count])
        position += count


def _tokens(value: Any) -> int:
    return len(orjson.dumps(value).decode()) // _CHARACTERS_PER_TOKEN
