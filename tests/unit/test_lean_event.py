"""An event for one who waits behaves as `asyncio.Event` does."""

import asyncio

import pytest

from runyard_gateway.lean_event import LeanEvent

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("make", [LeanEvent, asyncio.Event])
async def test_who_waits_goes_on_when_it_is_set(make: type[LeanEvent]) -> None:
    event = make()
    for _ in range(2):
        waiting = asyncio.create_task(event.wait())
        await asyncio.sleep(0)
        assert not waiting.done()
        event.set()
        event.set()
        event.clear()  # it was set all the same
        assert await waiting
    event.set()
    assert await event.wait()
    assert await event.wait()


@pytest.mark.parametrize("make", [LeanEvent, asyncio.Event])
async def test_who_was_cancelled_waits_no_more(make: type[LeanEvent]) -> None:
    event = make()
    waiting = asyncio.create_task(event.wait())
    await asyncio.sleep(0)
    waiting.cancel()
    event.set()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert await event.wait()
    event.clear()
    again = asyncio.create_task(event.wait())
    await asyncio.sleep(0)
    event.set()
    assert await again


async def test_it_may_begin_set() -> None:
    assert await LeanEvent(is_set=True).wait()
