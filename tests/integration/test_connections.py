"""Links to database and Redis do not grow with runs or readers, and none is held while something streams."""

import asyncio
from contextlib import AsyncExitStack

import pytest
from tests.clients.answer import is_terminal
from tests.clients.api import Api
from tests.integration.fixtures import on_postgres
from tests.integration.processes import eventually
from tests.integration.stack import Stack
from tests.standin import By, calls, hold, says

from runyard_gateway import app as gateway
from runyard_workers import main as worker

pytestmark = pytest.mark.anyio

IN_A_ROW = 50
AT_ONCE = 8
FILLS_THE_POOLS = 32
STILL_EMPTY = 10
"""Pools open a link when all others are in use, so the last ones come late; a leak would be of a link a run."""
RUNS = 25
LINKS_MAX = gateway.POOL_SIZE + worker.POOL_SIZE + 2
"""And one of the worker's beat, and the one that looks."""

CLIENTS = "datname = current_database() AND backend_type = 'client backend'"
"""And none of the server's own processes: it may vacuum at any moment."""


async def test_links_do_not_grow_with_the_number_of_runs(stack: Stack) -> None:
    """The tools use clients of the process (`agents/wired.py`), the counter says whether each of them worked."""
    stack.standin.answers(calls("count").calls("count"), says("counted"), by=By.TURN)
    api = stack.gateway.user()
    key = f"{stack.backing.prefix}:counter"
    stack.redis.set(key, 0, ex=3600)
    await at_once(api, FILLS_THE_POOLS)
    before = links(stack)
    for _ in range(IN_A_ROW):
        await at_once(api, 1)
    await at_once(api, AT_ONCE)
    assert links(stack) <= before + STILL_EMPTY
    assert int(stack.redis.get(key) or 0) == 2 * (FILLS_THE_POOLS + IN_A_ROW + AT_ONCE)


async def at_once(api: Api, count: int) -> None:
    results = await asyncio.gather(*(api.run("wired", "count") for _ in range(count)))
    assert {result["status"] for result in results} == {"completed"}


def links(stack: Stack) -> int:
    """Of all processes of the stack: to Redis where it is the stack's own, else to Postgres."""
    if stack.name == "sqlite":
        return len(stack.redis.client_list())
    ((count,),) = stack.execute(f"SELECT count(*) FROM pg_stat_activity WHERE {CLIENTS}")
    return int(count)


@on_postgres
async def test_open_streams_hold_no_link(stack: Stack, unique: str) -> None:
    """Two readers a run: more runs than the worker has links, more readers than the gateway has."""
    stack.standin.answers(*[says("begun ", hold(unique), "ended")] * RUNS)
    api = stack.gateway.user()
    async with AsyncExitStack() as exits:
        readings = [await exits.enter_async_context(api.streaming("talker")) for _ in range(RUNS)]
        for reading in readings[:]:
            await reading.until_text("begun ")
            readings.append(await exits.enter_async_context(api.resuming(reading.stream_id)))
        await eventually(lambda: not at_work(stack), "moment in which no link is at work")
        assert links(stack) <= LINKS_MAX < RUNS
        for path in ("/v1/runs", "/readyz"):
            responses = await asyncio.gather(*(api.get(path) for _ in range(RUNS)))
            assert {response.status_code for response in responses} == {200}
        assert len((await api.get("/v1/runs", limit=100, status="running")).json()["items"]) == RUNS
        stack.standin.gate(unique).release()
        for reading in readings:
            assert is_terminal((await reading.rest())[-1])
            assert reading.text == "begun ended"


def at_work(stack: Stack) -> list[tuple[object, ...]]:
    """Links with a transaction, of whatever state; one that is held shows up at every look."""
    return stack.execute(
        f"SELECT pid, state, query FROM pg_stat_activity WHERE {CLIENTS}"
        " AND pid <> pg_backend_pid() AND xact_start IS NOT NULL"
    )
