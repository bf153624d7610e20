"""Broadcasts on their way to Redis: how many wait, and what is said of those that do not reach it."""

import asyncio
from typing import Any

import pytest
from structlog.testing import capture_logs

from runyard_workers.rooms import WAITING_MAX, Broadcasts

pytestmark = pytest.mark.anyio

GUARD_S = 5.0
TOO_MANY = 7


class Published:
    """Stands in for Redis and keeps what is published."""

    def __init__(self) -> None:
        self.messages: list[bytes] = []
        self.all_came = asyncio.Event()

    def pipeline(self, *, transaction: bool) -> "Published":
        assert not transaction
        return self

    def publish(self, _channel: str, message: bytes) -> None:
        self.messages.append(message)

    async def execute(self) -> None:
        if len(self.messages) >= WAITING_MAX:
            self.all_came.set()


async def test_the_oldest_of_too_many_are_dropped_and_the_log_says_how_many() -> None:
    published: Any = Published()
    broadcasts = Broadcasts(published, prefix="test")
    room = broadcasts.sink("acme")
    for number in range(WAITING_MAX + TOO_MANY):
        room.broadcast("lobby", "said", number)
    with capture_logs() as logs:
        await asyncio.sleep(0)  # all of them wait now
        publishing = asyncio.create_task(broadcasts.run())
        async with asyncio.timeout(GUARD_S):
            await published.all_came.wait()
        publishing.cancel()
    assert published.messages == [b'["said",%d]' % number for number in range(TOO_MANY, WAITING_MAX + TOO_MANY)]
    assert [entry["number"] for entry in logs] == [TOO_MANY]
