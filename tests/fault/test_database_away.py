"""The database goes away in every way there is, under runs that go on: nobody is taken for dead, nothing is doubled."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

import psycopg
import pytest
import sqlalchemy as sa
from tests.contract.queue.queue_sides import redis_side
from tests.contract.store import severing
from tests.contract.store.severing import Cut
from tests.fault.conftest import Fleet
from tests.fault.crew import Crew, working
from tests.fault.held import end_well, held_runs, let_go
from tests.fault.readers import run_of
from tests.integration.processes import GUARD_S, POLL_S, Process, eventually
from tests.integration.stack import Backing, Gateway, Stack, prefix_of_ones_own, serving, standing_by
from tests.mortal_servers import MortalServer, mortal_postgres
from tests.redis_servers import redis_server
from tests.relay import Relay, relay_before

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(180)]

AWAY_S = 20.0
"""A worker that is not heard of for 8 s is dead."""

RUNS_OF_A_KIND, OF_FIFTY = 5, 17
CUTS = 6
"""At least: there are more when commits come faster than the test can follow."""

DEMOTED = "demoted"


class Way(Protocol):
    """One way of being away, for those who go to the database by `url`."""

    url: str

    def begin(self) -> None: ...

    def end(self) -> None: ...


class Refused:
    """No server listens."""

    def __init__(self, relay: Relay) -> None:
        self.url = relay.url
        self._relay = relay

    def begin(self) -> None:
        self._relay.refuse()

    def end(self) -> None:
        self._relay.recover()


class Silent(Refused):
    """What is sent is taken, and never answered."""

    def begin(self) -> None:
        self._relay.fall_silent()


class Standby:
    """It answers, and refuses to be written. The links that were made meanwhile lead to the standby for ever."""

    def __init__(self, relay: Relay, server_url: str) -> None:
        self.url = sa.make_url(relay.url).set(username=DEMOTED).render_as_string()
        self._server_url = server_url
        self._execute(f"CREATE ROLE {DEMOTED} SUPERUSER LOGIN")

    def begin(self) -> None:
        self._execute(f"ALTER ROLE {DEMOTED} SET default_transaction_read_only = on")
        self._execute(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = '{DEMOTED}'")

    def end(self) -> None:
        self._execute(f"ALTER ROLE {DEMOTED} RESET default_transaction_read_only")

    def _execute(self, statement: str) -> None:
        with psycopg.connect(self._server_url, autocommit=True) as link:
            link.execute(statement)


@dataclass(frozen=True, kw_only=True)
class FarFleet(Fleet):
    """One worker for each way, and gateways for those that are worse than a refusal."""

    server: MortalServer
    commits: severing.Relay
    ways: Sequence[Way]
    crew: Crew


@pytest.fixture(scope="module")
async def fleet(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[FarFleet]:
    redis_url = redis_server()
    with (
        mortal_postgres() as server,
        prefix_of_ones_own(redis_url) as prefix,
        redis_side(redis_url, prefix) as side,
    ):
        backing = Backing(
            name="postgres", database_url=server.url, redis_url=redis_url, broker_url=redis_url, prefix=prefix
        )
        async with (
            severing.relay_before(server.url) as commits,
            standing_by(backing, tmp_path_factory.mktemp("far-fleet")) as stack,
        ):
            with ways_through(commits.url, server.url) as ways:
                async with working(stack) as crew:
                    joining = asyncio.gather(*(crew.join(RUNYARD_DATABASE_URL=way.url) for way in ways))
                    async with serving_by(stack, ways[1:]):
                        await joining
                        yield FarFleet(stack=stack, broker=side, server=server, commits=commits, ways=ways, crew=crew)


@contextmanager
def ways_through(url: str, server_url: str) -> Iterator[list[Way]]:
    with relay_before(url) as one, relay_before(url) as another, relay_before(url) as third:
        yield [Refused(one), Silent(another), Standby(third, server_url)]


@asynccontextmanager
async def serving_by(stack: Stack, ways: Sequence[Way]) -> AsyncIterator[None]:
    async with AsyncExitStack() as exits:
        processes = [
            exits.enter_context(stack.process("runyard_gateway", RUNYARD_DATABASE_URL=way.url)) for way in ways
        ]
        stack.gateways += [await exits.enter_async_context(serving(process)) for process in processes]
        yield
        assert [process.complaints() for process in processes] == [[]] * len(ways)


async def test_nobody_dies_while_the_database_is_away_whichever_way(fleet: FarFleet, stack: Stack, unique: str) -> None:
    """In the middle of fifty runs."""
    async with held_runs(stack, unique, of_a_kind=OF_FIFTY) as readings:
        for way in fleet.ways:
            way.begin()
        let_go(stack, unique)
        await asyncio.gather(*(refuses(gateway) for gateway in stack.gateways))
        for worker in fleet.crew.workers:
            await eventually(lambda worker=worker: without_beat_s(worker) >= AWAY_S, "outage that would be a death")
        for way in fleet.ways:
            way.end()
        for gateway in stack.gateways:
            await is_ready(gateway)
        started = [await gateway.user("reader").start("mortal", "<last> again") for gateway in stack.gateways]
        await end_well(stack, readings)
        for run in started:
            assert (await stack.gateway.user("reader").settled(run["invocationId"]))["status"] == "completed"
    assert fleet.crew.burials() == []


async def refuses(gateway: Gateway) -> None:
    """It takes no call, and says so to callers and probes."""
    asking = gateway.user("reader").post("/v1/agents/mortal/runs", {"input": "<last> nobody hears of it"})
    probing = gateway.anonymous().get("/readyz")
    call, probe = await asyncio.gather(asking, probing)
    assert (call.status_code, call.json()["error"]["code"]) == (503, "STORE_UNAVAILABLE")
    assert call.json()["error"]["retryable"]
    assert (probe.status_code, probe.json()["error"]["code"]) == (503, "NOT_READY")
    assert (await gateway.anonymous().get("/healthz")).status_code == 200


async def is_ready(gateway: Gateway) -> None:
    """It finds out by its probes alone, without a call that would have to fail first."""
    async with asyncio.timeout(GUARD_S):
        while (await gateway.anonymous().get("/readyz")).status_code != 200:  # noqa: ASYNC110 - as any prober does
            await asyncio.sleep(POLL_S)


def without_beat_s(worker: Process) -> float:
    """How long its beats have failed, by its log."""
    failed = [datetime.fromisoformat(event["timestamp"]) for event in worker.events("beat failed")]
    return (failed[-1] - failed[0]).total_seconds() if failed else 0.0


async def test_commits_whose_answers_are_lost_are_not_doubled(fleet: FarFleet, stack: Stack, unique: str) -> None:
    """Links are cut at commits of workers and gateways, before the server has them or after it has answered."""
    cuts: list[Cut] = []
    cutting = asyncio.create_task(cut_commits(fleet.commits, cuts))
    async with held_runs(stack, unique, of_a_kind=RUNS_OF_A_KIND) as readings:
        let_go(stack, unique)
        await end_well(stack, readings)
    cutting.cancel()
    await asyncio.wait([cutting])
    assert len(cuts) >= CUTS
    runs = {
        run_id
        for (run_id,) in stack.execute(
            "SELECT run_id FROM agent_inputs WHERE CAST(content AS text) LIKE :said", said=f"%{unique}%"
        )
    }
    assert runs == {run_of(reading) for reading in readings}


async def cut_commits(relay: severing.Relay, cuts: list[Cut]) -> None:
    """Every third one or so."""
    for cut in itertools.cycle(Cut):
        passed = relay.commits
        await eventually(lambda passed=passed: relay.commits >= passed + 2, "commits")
        relay.cut = cut
        await eventually(lambda: relay.cut is None, "cut commit")
        cuts.append(cut)


async def test_runs_go_on_after_a_restart_and_after_their_links_were_ended(
    fleet: FarFleet, stack: Stack, unique: str
) -> None:
    async with held_runs(stack, unique, of_a_kind=RUNS_OF_A_KIND) as readings:
        fleet.server.kill()
        await asyncio.to_thread(fleet.server.start)
        stack.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
        let_go(stack, unique)
        await end_well(stack, readings)
