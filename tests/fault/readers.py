"""Readers that move from one gateway to another and resume there."""

import copy
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.clients.answer import is_terminal
from tests.clients.api import Api, Reading
from tests.clients.sse import Event


@asynccontextmanager
async def moved(reading: Reading, there: Api) -> AsyncIterator[Reading]:
    """The same reader elsewhere: it goes on from its cursor, with the events and the text that it has in hand."""
    async with there.resuming(reading.stream_id, reading.last_event_id) as resumed:
        assert resumed.response.status_code == 200, await resumed.response.aread()
        resumed.events = list(reading.events)
        resumed.answer = copy.deepcopy(reading.answer)
        yield resumed


def run_of(reading: Reading) -> str:
    """Of an answer to a call."""
    return reading.response.headers["x-run-id"]


def is_whole(reading: Reading) -> bool:
    """No number is missing or comes twice, and the one terminal frame is the last.

    The first number is 1, or that of a reset: of a worker that died before its first frame nobody knows whether it
    was read. What has no number (that the run is queued) is told in passing.
    """
    numbered = [event for event in reading.events if event.seq is not None]
    numbers = [event.seq for event in numbered]
    first = numbers[0] if _withdraws_all(numbered[0]) else 1
    ends = [is_terminal(event) for event in reading.events]
    return numbers == list(range(first, first + len(numbers))) and ends.index(True) == len(ends) - 1


def _withdraws_all(event: Event) -> bool:
    return event.type == "rewind" and json.loads(event.data)["toSeq"] == 0
