"""For how long what a caller has shown is good: whoever asked is told once, and may take that back."""

import asyncio
import time

import pytest

from runyard.errors import Unauthenticated
from runyard_gateway.auth.credentials import Lasting, UntilTime

pytestmark = pytest.mark.anyio

GUARD_S = 10.0


async def told_by(credential: UntilTime) -> Unauthenticated:
    told = asyncio.get_running_loop().create_future()
    credential.on_end(told.set_result)
    async with asyncio.timeout(GUARD_S):
        error: Unauthenticated = await told
    return error


@pytest.mark.parametrize("left_s", [0.01, 0, -3600])
async def test_a_token_ends_when_it_expires(left_s: float) -> None:
    error = await told_by(UntilTime(time.time() + left_s))
    assert error.fields == {"reason": "expired"}


async def test_what_is_taken_back_is_not_told() -> None:
    told: list[Unauthenticated] = []
    credential = UntilTime(time.time() + 0.01)
    credential.on_end(told.append)()
    await told_by(credential)  # set later for the same time: the other one would have been told before
    assert told == []


async def test_what_lasts_tells_nobody() -> None:
    told: list[Unauthenticated] = []
    Lasting().on_end(told.append)()
    assert told == []
