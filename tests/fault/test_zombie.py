"""A worker is frozen until another one has ended its runs, then it wakes up in the middle of each."""

from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Any

import pytest
from tests.clients.answer import is_terminal
from tests.clients.api import Reading
from tests.fault.accounts import INTERRUPTED, account_of
from tests.fault.conftest import on_redis
from tests.fault.crew import Crew
from tests.fault.readers import run_of
from tests.integration.processes import GUARD_S, eventually
from tests.integration.stack import Stack
from tests.standin import calls, hold, says

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
    async with AsyncExitStack() as readers:
        [zombie] = await crew.join()
        talking, working = [], []
        for number in range(RUNS_OF_A_KIND):
            stack.standin.answers(
                says("The dead ", "speak", hold(unique), ", and go on."),
                says("The living speak."),
                contains=f"<talk {number}>",
            )
            stack.standin.answers(
                calls("wait", {"gate": unique}), says("It may have acted."), contains=f"<work {number}>"
            )
            talking.append(await readers.enter_async_context(api.streaming("mortal", f"<talk {number}>")))
            working.append(await readers.enter_async_context(api.streaming("mortal", f"<work {number}>")))
        for reading in talking:
            await reading.until_text("The dead speak")
        for reading in working:
            await at_work(stack, reading)

        crew.freeze(zombie)
        await crew.join()
        for reading in [*talking, *working]:
            await reading.rest(guard_s=GUARD_S)
        await all_closed(stack)
        before = everything(stack, [*talking, *working])

        stack.open_gate(unique)
        stack.standin.gate(unique).release()
        crew.thaw(zombie)
        await crew.born_again(zombie)
        await crew.leave()
        assert everything(stack, [*talking, *working]) == before

        for reading in [*talking, *working]:
            assert [event.seq for event in reading.events] == list(range(1, len(reading.events) + 1))
            assert sum(map(is_terminal, reading.events)) == 1
        for reading in talking:
            account = await account_of(stack, api, run_of(reading))
            assert reading.text == account.text == "The living speak."
            assert account.deaths == [[]]
        for reading in working:
            account = await account_of(stack, api, run_of(reading))
            assert reading.text == account.text == "It may have acted."
            assert account.result("wait") == (INTERRUPTED, True)
            assert account.count("wait") == 1
            assert account.deaths == [["wait"]]


async def at_work(stack: Stack, reading: Reading) -> None:
    await eventually(lambda: stack.effects(run_of(reading)), "tool at work")


async def all_closed(stack: Stack) -> None:
    open_streams = "SELECT id FROM agent_invocations WHERE NOT stream_closed"
    await eventually(lambda: not stack.execute(open_streams), "close of every stream")


def everything(stack: Stack, readings: Sequence[Reading]) -> dict[str, Any]:
    """Every row but those of the workers, and all that Redis has of these streams."""
    rows = {table: stack.execute(f"SELECT * FROM {table} ORDER BY {key}") for table, key in TABLES.items()}
    streams = {reading.stream_id: f"{stack.backing.prefix}:stream:{reading.stream_id}" for reading in readings}
    frames = {
        stream_id: (stack.redis.xrange(key), stack.redis.hgetall(f"{key}:meta")) for stream_id, key in streams.items()
    }
    return {**rows, "frames": frames}
