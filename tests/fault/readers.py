"""Readers that move from one gateway to another with what they have read."""

import copy
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

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
