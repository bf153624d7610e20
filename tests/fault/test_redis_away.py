"""Redis goes away under fifty runs, is emptied, comes back as another one: runs go on, and so do their readers."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass

import pytest
from tests.clients.answer import answer_text, is_terminal
from tests.clients.api import Api, replay
from tests.clients.metrics import shows
from tests.clients.sse import Event
from tests.contract.queue.queue_sides import redis_side
from tests.databases import postgres_database
from tests.fault.conftest import Fleet
from tests.fault.crew import Crew, working
from tests.fault.held import TEXT, end_well, held_runs, let_go
from tests.fault.readers import run_of
from tests.integration.processes import GUARD_S, eventually
from tests.integration.stack import Backing, Gateway, Stack, prefix_of_ones_own, serving, standing_by
from tests.mortal_servers import MortalServer, forgetful_redis
from tests.ports import free_port
from tests.redis_servers import redis_server
from tests.relay import Relay, relay_before
from tests.standin import hold, says

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(180)]

AWAY_S = 20.0
"""Longer than a closed stream's end may be late (10 s), and than a gateway waits for silent streams (15 s)."""

RUNS_OF_A_KIND = 14
LONG_RUNS = 8


@dataclass(frozen=True, kw_only=True)
class ForgetfulFleet(Fleet):
    """One gateway and one worker for each of two ways to the frames; messages take another one."""

    server: MortalServer
    ways: tuple[Relay, Relay]
    crew: Crew
    metrics_ports: tuple[int, int]
    """Of the gateway and the worker whose way is the first one."""


@pytest.fixture(scope="module")
async def fleet(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ForgetfulFleet]:
    broker_url = redis_server()
    with (
        forgetful_redis() as server,
        postgres_database() as database_url,
        prefix_of_ones_own(broker_url) as prefix,
        redis_side(broker_url, prefix) as side,
        relay_before(server.url) as one,
        relay_before(server.url) as another,
    ):
        backing = Backing(
            name="postgres", database_url=database_url, redis_url=server.url, broker_url=broker_url, prefix=prefix
        )
        async with (
            standing_by(backing, tmp_path_factory.mktemp("forgetful-fleet")) as stack,
            working(stack) as crew,
            AsyncExitStack() as exits,
        ):
            ways = (one, another)
            ports = (free_port(), free_port())
            shown = [[{"RUNYARD_METRICS_PORT": str(port)}, {}] for port in ports]
            joining = asyncio.gather(
                *(crew.join(RUNYARD_REDIS_URL=way.url, **more) for way, more in zip(ways, shown[1], strict=True))
            )
            processes = [
                exits.enter_context(stack.process("runyard_gateway", RUNYARD_REDIS_URL=way.url, **more))
                for way, more in zip(ways, shown[0], strict=True)
            ]
            stack.gateways += [await exits.enter_async_context(serving(process)) for process in processes]
            await joining
            yield ForgetfulFleet(stack=stack, broker=side, server=server, ways=ways, crew=crew, metrics_ports=ports)
            assert [process.complaints() for process in processes] == [[]] * len(ways)


async def test_fifty_runs_go_on_without_redis_and_their_readers_after_it(
    fleet: ForgetfulFleet, stack: Stack, unique: str
) -> None:
    """For one half of the fleet it refuses links, for the other it takes what it is sent and never answers."""
    after = stack.standin.gate(f"{unique}-after")
    stack.standin.answers(
        says("Let me look. ", hold(unique), "All ", hold(after.name), "done."), by="turn", contains="<long>"
    )
    stack.standin.answers(says("Never ", hold(f"{unique}-never"), "said."), contains="<stop>")
    stack.standin.answers(says("Short."), by="turn", contains="<short>")
    async with held_runs(stack, unique, of_a_kind=RUNS_OF_A_KIND) as readings, AsyncExitStack() as readers:
        long = [
            await readers.enter_async_context(stack.gateways[number % 2].user("reader").streaming("talker", "<long>"))
            for number in range(LONG_RUNS)
        ]
        for reading in long:
            await reading.until_text("Let me look. ")
        stopping = await readers.enter_async_context(stack.gateways[1].user("reader").streaming("talker", "<stop>"))
        await stopping.until_text("Never ")
        refusing, silent = fleet.ways
        refusing.refuse()
        silent.fall_silent()
        away = asyncio.create_task(asyncio.sleep(AWAY_S))  # at least so long, whatever is done meanwhile
        let_go(stack, unique)
        ending = {run_of(reading) for reading in readings}
        await eventually(lambda: ending <= completed(stack), "end of all runs that can end")
        await after.reached(LONG_RUNS)
        await is_stopped(stack.gateways[1], run_of(stopping))
        results = await asyncio.gather(*(gateway.user().run("talker", "<short>") for gateway in stack.gateways))
        assert [result["text"] for result in results] == ["Short.", "Short."]
        for worker in fleet.crew.workers:  # who owes their streams the end is late with it by now
            await worker.logged("stream closed late")
        for port in fleet.metrics_ports:
            await shows(port, "runyard_redis_away", 1)
        await away
        silent.cut()
        silent.recover()
        refusing.recover()
        after.release()
        await end_well(stack, [*readings, *long])
        for port in fleet.metrics_ports:
            await shows(port, "runyard_redis_away", 0)
        await stopping.rest()
        assert stopping.text == "Never "
        for worker in fleet.crew.workers:
            late = [event["invocation_id"] for event in worker.events("stream closed late")]
            assert len(late) == len(set(late)), "each is taken up once, however long Redis is away"

    for reading in [*readings, *long]:
        await eventually(lambda reading=reading: closed(stack, run_of(reading)), "closed stream", guard_s=GUARD_S)
        for gateway in stack.gateways:
            whole(await replay(gateway.user("reader"), reading.stream_id))


async def is_stopped(gateway: Gateway, run_id: str) -> None:
    """Also where Redis takes what it is told and never answers, the call is answered and its worker finds the row."""
    api = gateway.user("reader")
    response = await api.post(f"/v1/runs/{run_id}/cancel")
    assert response.status_code == 202
    assert gateway.process.events("cancel not announced") == [], "the answer did not wait for that"
    assert (await api.settled(response.json()["invocationId"]))["status"] == "cancelled"


def completed(stack: Stack) -> set[str]:
    return {run_id for (run_id,) in stack.execute("SELECT id FROM agent_runs WHERE status = 'completed'")}


def closed(stack: Stack, run_id: str) -> bool:
    return bool(stack.execute("SELECT id FROM agent_invocations WHERE run_id = :run AND stream_closed", run=run_id))


def whole(events: list[Event], text: str = TEXT) -> None:
    """A stream as it is told to somebody who comes late."""
    assert answer_text(events) == text
    assert [is_terminal(event) for event in events].index(True) == len(events) - 1


@pytest.mark.parametrize("loss", ["emptied", "restarted"])
async def test_what_redis_forgot_is_told_again(fleet: ForgetfulFleet, stack: Stack, unique: str, loss: str) -> None:
    stack.standin.answers(says("Sho", "rt."), by="turn", contains="<short>")
    apis = [gateway.user("reader") for gateway in stack.gateways]
    settled = [await read_half(api) for api in apis for _ in range(2)]
    async with held_runs(stack, unique, of_a_kind=4) as readings:
        for reading in readings:
            await reading.until(lambda event: event.type == "")
        if loss == "emptied":
            stack.redis.flushall()
        else:
            fleet.server.kill()
            fleet.server.start()
        for stream_id, cursor in settled:
            for api in apis:
                whole(await replay(api, stream_id), "Short.")
                whole(await replay(api, stream_id, cursor), "Short.")
        let_go(stack, unique)
        await end_well(stack, readings)
        for reading in readings:
            [reset] = [event for event in reading.events if event.type == "rewind"]
            assert reset.seq is not None
            assert reset.seq > 1_000_000


async def test_a_worker_starts_without_redis_and_tells_all_when_it_is_there(
    fleet: ForgetfulFleet, stack: Stack
) -> None:
    stack.standin.answers(says("Sho", "rt."), by="turn", contains="<short>")
    api = stack.gateway.user()
    with relay_before(fleet.server.url) as way:
        way.refuse()
        port = free_port()
        [worker] = await fleet.crew.join(
            RUNYARD_REDIS_URL=way.url, RUNYARD_QUEUES="brief", RUNYARD_METRICS_PORT=str(port)
        )
        await shows(port, "runyard_redis_away", 1)  # without a frame that it would have to send
        async with api.streaming("brief", "<short>") as reading:
            run_id = run_of(reading)
            await eventually(lambda: run_id in completed(stack), "run without Redis")
            way.recover()
            whole(await reading.rest(), "Short.")
        await shows(port, "runyard_redis_away", 0)
        assert began_in(stack, run_id) == ""
        present = stack.redis.info("server")["run_id"]
        async with asyncio.timeout(GUARD_S):
            while began_in(stack, (await api.run("brief", "<short>"))["runId"]) != present:
                pass
        await fleet.crew.retire(worker)  # killed, it would leave closed streams unmarked, which others find after 10 s


def began_in(stack: Stack, run_id: str) -> str:
    """The Redis that the run's worker knew."""
    ((redis_run_id,),) = stack.execute("SELECT redis_run_id FROM agent_invocations WHERE run_id = :run", run=run_id)
    return str(redis_run_id)


async def read_half(api: Api) -> tuple[str, str]:
    """The stream of a run that has ended, and the cursor of a reader that left in the middle."""
    async with api.streaming("talker", "<short>") as reading:
        await reading.until(lambda event: event.type == "")
        cursor = reading.last_event_id
        await reading.rest()
    return reading.stream_id, cursor
