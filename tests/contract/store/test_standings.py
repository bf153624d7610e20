"""What a queued call waits for beside its turn, and which workers count as living."""

from typing import Any

import pytest
from tests.contract.store.states import AT, accepted, claimed, registered, run_and_invocation

from runyard.beats import DEAD_AFTER_S
from runyard.db.engine import Database, sync_engine
from runyard.db.records import Run
from runyard.db.workers import beat
from runyard.ids import WorkerId
from runyard_gateway.directory import AgentDirectory
from runyard_gateway.fleet import Fleet
from runyard_gateway.standings import Standing, Standings, WaitReason

pytestmark = pytest.mark.anyio


def manifests(**limits: int | None) -> dict[str, Any]:
    return {name: ("v1", {"name": name, "queue": "default", "maxRunning": limit}) for name, limit in limits.items()}


class Watch:
    """A gateway's parts that tell where calls stand, by a clock that the test moves."""

    def __init__(self, database: Database, **limits: int) -> None:
        self.now = 100.0
        self.fleet = Fleet(database, clock=lambda: self.now)
        self.directory = AgentDirectory(database, lives=self.fleet.lives, **limits)
        self._database = database
        self._standings = Standings(database, self.directory, self.fleet)

    async def of(self, run: Run) -> Standing | None:
        stream_id = (await run_and_invocation(self._database, run.id))[1].stream_id
        await self.fleet.look()
        return (await self._standings.of([stream_id, "st_none"])).get(stream_id)

    async def reason(self, run: Run) -> WaitReason | None:
        standing = await self.of(run)
        assert standing is not None
        return standing.reason


@pytest.mark.parametrize(
    ("limits", "limit_of_agent", "expected"),
    [
        ({"per_user": 1}, None, WaitReason.USER_LIMIT),
        ({"per_tenant": 1}, None, WaitReason.TENANT_LIMIT),
        ({}, 1, WaitReason.AGENT_LIMIT),
        ({"per_user": 1, "per_tenant": 1}, 1, WaitReason.AGENT_LIMIT),
        ({"per_user": 2, "per_tenant": 2}, 2, None),
        ({}, None, None),
    ],
)
async def test_a_call_that_waits_for_a_limit_says_for_which(
    database: Database, database_url: str, limits: dict[str, int], limit_of_agent: int | None, expected: WaitReason
) -> None:
    worker = registered(database_url, manifests=manifests(researcher=limit_of_agent))
    first, second, third = [await accepted(database, at=AT + number) for number in range(3)]
    await claimed(database, worker)
    watch = Watch(database, **limits)
    assert await watch.of(first) is None, "it runs"
    assert await watch.of(second) == Standing(position=1, reason=expected)
    assert await watch.of(third) == Standing(position=2, reason=expected)


async def test_the_limits_of_others_are_not_a_calls_own(database: Database, database_url: str) -> None:
    worker = registered(database_url, manifests=manifests(researcher=None))
    await accepted(database)
    await claimed(database, worker)
    neighbour = await accepted(database, user_id="bob")
    stranger = await accepted(database, tenant_id="initech")
    watch = Watch(database, per_user=1, per_tenant=2)
    assert await watch.reason(neighbour) is None
    assert await watch.reason(stranger) is None
    assert await Watch(database, per_tenant=1).reason(neighbour) is WaitReason.TENANT_LIMIT


async def test_a_call_whose_agent_no_living_worker_has_says_so(database: Database, database_url: str) -> None:
    worker = registered(database_url, manifests=manifests(researcher=None))
    run = await accepted(database)
    elsewhere = await accepted(database, queue="gpu")
    watch = Watch(database, per_user=1)
    assert await watch.reason(elsewhere) is WaitReason.NO_WORKER, "of its queue"
    for _ in range(int(DEAD_AFTER_S)):
        assert await watch.reason(run) is None
        watch.now += 1
    assert await watch.reason(run) is WaitReason.NO_WORKER, "its row is there, its beat stands still"
    beats(database_url, worker)
    assert await watch.reason(run) is None
    beats(database_url, worker, draining=True)
    assert await watch.reason(run) is WaitReason.NO_WORKER, "it leaves"


async def test_dead_workers_are_not_counted_among_an_agents(database: Database, database_url: str) -> None:
    dead = registered(database_url, manifests={"researcher": ("v2", manifests(researcher=None)["researcher"][1])})
    living = registered(database_url, manifests=manifests(researcher=None))
    watch = Watch(database)

    async def known() -> tuple[str, int]:
        watch.directory._read_at = float("-inf")
        agent = await watch.directory.get("researcher")
        assert agent is not None
        return agent.current.version, agent.live_workers.total()

    for _ in range(int(DEAD_AFTER_S)):
        await watch.fleet.look()
        assert (await known())[1] == 2
        watch.now += 1
        beats(database_url, living)
    await watch.fleet.look()
    assert await known() == ("v1", 1), "and it is known as the living have it"
    assert dead != living


def beats(database_url: str, worker: WorkerId, *, draining: bool = False) -> None:
    engine = sync_engine(database_url)
    with engine.begin() as connection:
        beat(connection, worker, draining=draining)
    engine.dispose()
