"""Fifty runs at once, with tools side by side: none is lost, nothing happens twice, every text is the transcript's."""

import asyncio
import json
from collections import Counter
from typing import Any

import pytest
from tests.clients.answer import is_terminal
from tests.clients.api import Api
from tests.integration.stack import Stack
from tests.standin import says, thinks

pytestmark = pytest.mark.anyio

RUNS = 50
TEXTS = ("Let me ", "look at it. ", "One more ", "moment. ", "All ", "done: ", "\N{FAMILY}\r\n", "paid.")


async def test_fifty_runs_at_once(stack: Stack) -> None:
    stack.standin.answers(
        thinks("Both, ", "at once.").says(*TEXTS[:2]).calls("charge", {"order": "a"}).calls("look_up", {"order": "a"}),
        says(*TEXTS[2:4]).calls("charge", {"order": "b"}).calls("look_up", {"order": "b"}),
        says(*TEXTS[4:]),
        by="turn",
    )
    api = stack.gateway.user()
    results = await asyncio.gather(*(read_one(api, number) for number in range(RUNS)))
    for text, result in results:
        assert result["status"] == "completed"
        assert result["steps"] == 3
        messages = await api.messages(result["runId"])
        stack.standin.validate_transcript(
            [{"role": message["role"], "content": message["content"]} for message in messages]
        )
        assert [message["role"] for message in messages] == ["user", "assistant"] * 3
        blocks = [block for message in messages if message["role"] == "assistant" for block in message["content"]]
        assert text == "".join(block["text"] for block in blocks if block["type"] == "text") == "".join(TEXTS)
        asked = [block["id"] for block in blocks if block["type"] == "tool_use"]
        effects = Counter(effect.split()[-1] for effect in stack.effects(result["runId"]))
        assert effects == Counter(asked)
    assert len({result["runId"] for _, result in results}) == RUNS


async def read_one(api: Api, number: int) -> tuple[str, dict[str, Any]]:
    async with api.streaming("clerk", f"number {number}") as reading:
        events = await reading.rest()
        assert [event.seq for event in events] == list(range(1, len(events) + 1))
        assert [is_terminal(event) for event in events] == [False] * (len(events) - 1) + [True]
        return reading.text, json.loads(events[-1].data)
