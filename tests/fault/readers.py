"""Readers that move from one gateway to another with what they have read."""

import copy
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.clients.answer import is_terminal
from tests.clients.api import Api, Reading


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

    What has no number (that the run is queued) is told in passing.
    """
    numbers = [event.seq for event in reading.events if event.seq is not None]
    ends = [is_terminal(event) for event in reading.events]
    return numbers == list(range(1, len(numbers) + 1)) and ends.index(True) == len(ends) - 1
