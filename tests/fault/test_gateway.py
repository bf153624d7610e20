"""A gateway is killed with calls that it has just accepted and readers in the middle of an answer."""

import asyncio
from contextlib import AsyncExitStack

import httpx2
import pytest
from tests.clients.api import Api, Reading
from tests.fault.accounts import account_of
from tests.fault.conftest import on_redis
from tests.fault.crew import Crew
from tests.fault.readers import moved, run_of
from tests.integration.stack import Stack
from tests.standin import hold, says

pytestmark = [pytest.mark.anyio, on_redis]

READERS = 5
CALLS = 20


async def test_what_a_killed_gateway_had_accepted_goes_on(stack: Stack, crew: Crew, unique: str) -> None:
    stack.standin.answers(says("half ", hold(unique), "and half"), by="turn", contains="<read>")
    stack.standin.answers(says("Done."), by="turn", contains="<start>")
    await crew.join()
    async with AsyncExitStack() as exits:
        mortal = await exits.enter_async_context(stack.starting_gateway())
        there = mortal.user("reader")
        here = Api(stack.gateway.http, there.headers)
        reading = [await exits.enter_async_context(there.streaming("talker", "<read>")) for _ in range(READERS)]
        for each in reading:
            await each.until_text("half ")
        started = await asyncio.gather(*(there.start("talker", "<start>") for _ in range(CALLS)))
        mortal.process.kill()
        for each in reading:
            with pytest.raises(httpx2.RemoteProtocolError):
                await each.rest()
        stack.standin.gate(unique).release()
        for each in reading:
            await finishes(stack, here, each)
        results = await asyncio.gather(*(here.settled(each["invocationId"]) for each in started))
        assert {result["text"] for result in results} == {"Done."}


async def finishes(stack: Stack, here: Api, reading: Reading) -> None:
    async with moved(reading, here) as resumed:
        events = await resumed.rest()
    assert resumed.text == "half and half" == (await account_of(stack, here, run_of(reading))).text
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
