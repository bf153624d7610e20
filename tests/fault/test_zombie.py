"""A worker is frozen until another one has ended its runs, then it wakes up in the middle of each."""

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Any

import pytest
from tests.clients.api import Reading
from tests.clients.metrics import shows
from tests.contract.store import severing
from tests.contract.store.severing import Cut, Held
from tests.fault.accounts import INTERRUPTED, account_of
from tests.fault.conftest import on_redis
from tests.fault.crew import Crew
from tests.fault.readers import is_whole, run_of
from tests.integration.processes import GUARD_S, eventually
from tests.integration.stack import Stack
from tests.ports import free_port
from tests.relay import relay_before
from tests.standin import Answer, calls, hold, says

pytestmark = [pytest.mark.anyio, on_redis]

RUNS_OF_A_KIND = 3
TABLES = {
    "agent_runs": "id",
    "agent_invocations": "id",
    "agent_inputs": "id",
    "agent_messages": "run_id, seq",
    "agent_calls": 'run_id, assistant_seq, "index"',
}


async def test_a_worker_that_wakes_up_in_its_grave_writes_nothing(stack: Stack, crew: Crew, unique: str) -> None:
    api = stack.gateway.user()
    dead, living = stack.standin.gate(f"{unique}-dead"), stack.standin.gate(f"{unique}-living")
    says_the_dead = says("The dead ", "speak", hold(dead.name), ", and go on.")
    async with AsyncExitStack() as readers:

        async def begin(kind: str, number: int, *scripts: Answer) -> Reading:
            stack.standin.answers(*scripts, contains=f"<{kind} {number}>")
            return await readers.enter_async_context(api.streaming("mortal", f"<{kind} {number}>"))

        metrics_port = free_port()
        [zombie] = await crew.join(RUNYARD_METRICS_PORT=str(metrics_port))
        talking, working, unfinished = [], [], []
        for number in range(RUNS_OF_A_KIND):
            talking.append(await begin("talk", number, says_the_dead, says("The living speak.")))
            working.append(await begin("work", number, calls("wait", {"gate": unique}), says("It may have acted.")))
            unfinished.append(
                await begin("unfinished", number, says_the_dead, says("The living ", hold(living.name), "speak."))
            )
        every = [*talking, *working, *unfinished]
        for reading in [*talking, *unfinished]:
            await reading.until_text("The dead speak")
        for reading in working:
            await at_work(stack, reading)

        crew.freeze(zombie)
        await crew.join()
        for reading in [*talking, *working]:
            await reading.rest(guard_s=GUARD_S)
            await closed(stack, reading)
        for reading in unfinished:
            await reading.until(lambda event: event.data == "The living ", guard_s=GUARD_S)
        before = everything(stack, every)

        stack.open_gate(unique)
        dead.release()
        crew.thaw(zombie)
        await crew.born_again(zombie)
        await shows(metrics_port, "runyard_runs_lost_total", len(every))
        await crew.retire(zombie)
        assert everything(stack, every) == before

        living.release()
        for reading in every:
            await reading.rest()
            assert is_whole(reading)
        for reading in [*talking, *unfinished]:
            account = await account_of(stack, api, run_of(reading))
            assert reading.text == account.text == "The living speak."
            assert account.deaths == [[]]
        for reading in working:
            account = await account_of(stack, api, run_of(reading))
            assert reading.text == account.text == "It may have acted."
            assert account.result("wait") == (INTERRUPTED, True)
            assert account.count("wait") == 1
            assert account.deaths == [["wait"]]


async def test_what_a_frozen_worker_had_on_its_way_comes_too_late(stack: Stack, crew: Crew, unique: str) -> None:
    """A commit that has not arrived, one whose answer has not, frames that have not: others are done before they do."""
    api = stack.gateway.user()
    says_more, ends = stack.standin.gate(f"{unique}-more"), stack.standin.gate(f"{unique}-end")
    with relay_before(stack.backing.redis_url) as frames:
        async with severing.relay_before(stack.backing.database_url) as rows, AsyncExitStack() as readers:

            async def begin(kind: str, *scripts: Answer) -> Reading:
                stack.standin.answers(*scripts, contains=f"<{kind}>")
                return await readers.enter_async_context(api.streaming("mortal", f"<{kind}>"))

            [zombie] = await crew.join(RUNYARD_REDIS_URL=frames.url, RUNYARD_DATABASE_URL=rows.url)
            writing = await begin(
                "writing", says("Never ", hold(says_more.name), "heard.", hold(ends.name)), says("Heard.")
            )
            await writing.until_text("Never ")
            answered = rows.hold(b"INSERT INTO agent_calls", Cut.AFTER)
            charging = await begin("charging", says("Stored. ").calls("charge", {"order": "a"}), says("Charged."))
            await reached(answered)
            committing = await begin("committing", says("Never ", hold(ends.name), "stored."), says("Stored."))
            await committing.until_text("Never ")
            sent = rows.hold(b"agent_messages", Cut.BEFORE)
            ends.advance()
            await reached(sent)
            frames.fall_silent()
            says_more.release()
            await eventually(lambda: b"heard." in frames.sent, "frames on their way")

            crew.freeze(zombie)
            await crew.join()
            every = [writing, charging, committing]
            for reading in every:
                await reading.rest(guard_s=GUARD_S)
                await closed(stack, reading)
            before = everything(stack, every)

            sent.passes.set()
            answered.passes.set()
            frames.recover()
            ends.release()
            crew.thaw(zombie)
            await crew.born_again(zombie)
            await crew.retire(zombie)
            assert everything(stack, every) == before

    for reading, text in zip(every, ("Heard.", "Stored. Charged.", "Stored."), strict=True):
        assert is_whole(reading)
        account = await account_of(stack, api, run_of(reading))
        assert reading.text == account.text == text
        assert account.miscounted() == []
        assert account.deaths == [[]]


async def reached(held: Held) -> None:
    async with asyncio.timeout(GUARD_S):
        await held.reached.wait()


async def at_work(stack: Stack, reading: Reading) -> None:
    await eventually(lambda: stack.effects(run_of(reading)), "tool at work")


async def closed(stack: Stack, reading: Reading) -> None:
    """The row says so too, which comes a moment later."""
    query = "SELECT id FROM agent_invocations WHERE run_id = :run AND stream_closed"
    await eventually(lambda: stack.execute(query, run=run_of(reading)), "closed stream")


def everything(stack: Stack, readings: Sequence[Reading]) -> dict[str, Any]:
    """Every row but those of the workers, and all that Redis has of these streams."""
    rows = {table: stack.execute(f"SELECT * FROM {table} ORDER BY {key}") for table, key in TABLES.items()}
    streams = {reading.stream_id: f"{stack.backing.prefix}:stream:{reading.stream_id}" for reading in readings}
    frames = {
        stream_id: (stack.redis.xrange(key), stack.redis.hgetall(f"{key}:meta")) for stream_id, key in streams.items()
    }
    return {**rows, "frames": frames}
