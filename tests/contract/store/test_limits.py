"""Limits of what runs at once, of a user, a tenant and an agent: who is passed by, and that nobody else waits."""

import anyio
import pytest
from tests.contract.store.states import (
    AT,
    OWNER,
    accepted,
    claim,
    claimed,
    completed,
    held,
    new_turn,
    registered,
    settle,
)

from runyard.db import groups
from runyard.db.claims import Claim, give_back
from runyard.db.deaths import bury
from runyard.db.engine import Database, sync_engine
from runyard.db.limits import Limits
from runyard.ids import WorkerId
from runyard.lifecycle.accept import accept_turn
from runyard.lifecycle.cancelling import cancel_run
from runyard.runs import RunStatus

pytestmark = pytest.mark.anyio

BOTH = {"researcher": "v1", "poet": "v1"}
ALL = {
    "user": Limits(per_user=2),
    "tenant": Limits(per_tenant=2),
    "agent": Limits(per_agent={"researcher": 2}),
    "all of them": Limits(per_user=2, per_tenant=2, per_agent={"researcher": 2}),
}
every_limit = pytest.mark.parametrize("limits", ALL.values(), ids=ALL)


@pytest.fixture
def worker(database_url: str) -> WorkerId:
    return registered(database_url)


async def end(database: Database, found: Claim) -> None:
    await database.write(settle, held(found), completed(), at=AT + 5)


@every_limit
async def test_no_more_run_than_may_and_the_next_when_one_has_ended(
    database: Database, worker: WorkerId, limits: Limits
) -> None:
    for number in range(4):
        await accepted(database, at=AT + number)
    first, second = [await claimed(database, worker, limits=limits) for _ in range(2)]
    assert await claim(database, worker, limits=limits) is None
    await end(database, first)
    await claimed(database, worker, limits=limits)
    assert await claim(database, worker, limits=limits) is None
    await database.write(give_back, second.run.id, second.run.generation)
    again = await claimed(database, worker, limits=limits)
    assert again.run.id == second.run.id, "it kept its place"
    assert await claim(database, worker, limits=limits) is None
    assert await claim(database, worker) is not None, "by one who knows no limits"


@every_limit
async def test_claims_at_once_keep_it(database: Database, rival: Database, worker: WorkerId, limits: Limits) -> None:
    for number in range(8):
        await accepted(database, at=AT + number)

    async def claim_until_none(through: Database, taken: list[Claim]) -> None:
        while (found := await claim(through, worker, limits=limits)) is not None:
            taken.append(found)

    for _ in range(4):
        taken: list[Claim] = []
        with anyio.fail_after(30):
            async with anyio.create_task_group() as tasks:
                for through in (database, rival, database, rival):
                    tasks.start_soon(claim_until_none, through, taken)
        assert len(taken) == 2
        for found in taken:
            await end(database, found)
    assert await claim(database, worker, limits=limits) is None


@pytest.mark.parametrize("ahead", [1, groups.NEAR + 8], ids=["a few", "more than are looked at"])
async def test_a_user_at_the_limit_is_passed_by(database: Database, worker: WorkerId, ahead: int) -> None:
    limits = Limits(per_user=1)
    for number in range(ahead + 1):
        await accepted(database, user_id="ada", at=AT + number)
    await claimed(database, worker, limits=limits)
    late = [await accepted(database, user_id=user, at=AT + 100 - at) for at, user in enumerate(["bob", "cyd"])]
    found = [await claimed(database, worker, limits=limits) for _ in range(2)]
    assert [item.run.id for item in found] == [late[1].id, late[0].id], "by rank, not by name"
    assert await claim(database, worker, limits=limits) is None
    await accepted(database, tenant_id="initech", user_id="ada", at=AT + 200)
    assert (await claimed(database, worker, limits=limits)).run.tenant_id == "initech", "another user of that name"


async def test_a_tenant_at_the_limit_is_passed_by_for_all_its_users_and_agents(
    database: Database, worker: WorkerId
) -> None:
    limits = Limits(per_tenant=1)
    for number, (user, agent) in enumerate([("ada", "researcher"), ("bob", "researcher"), ("cyd", "poet")]):
        await accepted(database, user_id=user, agent=agent, at=AT + number)
    await accepted(database, tenant_id="initech", at=AT + 10)
    first = await claimed(database, worker, limits=limits, agents=BOTH)
    assert (await claimed(database, worker, limits=limits, agents=BOTH)).run.tenant_id == "initech"
    assert await claim(database, worker, limits=limits, agents=BOTH) is None
    await end(database, first)
    assert (await claimed(database, worker, limits=limits, agents=BOTH)).run.user_id == "bob"


async def test_an_agent_at_the_limit_leaves_the_others_alone(database: Database, worker: WorkerId) -> None:
    limits = Limits(per_agent={"researcher": 1})
    for number in range(2):
        await accepted(database, tenant_id=f"tenant-{number}", at=AT + number)
        await accepted(database, agent="poet", at=AT + 10 + number)
    taken = [await claimed(database, worker, limits=limits, agents=BOTH) for _ in range(3)]
    assert sorted(item.run.agent for item in taken) == ["poet", "poet", "researcher"]
    assert await claim(database, worker, limits=limits, agents=BOTH) is None


async def test_each_user_runs_their_first_where_all_have_many(database: Database, worker: WorkerId) -> None:
    limits = Limits(per_user=1)
    for number in range(12):
        await accepted(database, user_id=f"user-{number // 3}", at=AT + number)
    taken = [await claimed(database, worker, limits=limits) for _ in range(4)]
    assert [item.run.user_id for item in taken] == [f"user-{number}" for number in range(4)]
    assert [item.run.rank for item in taken] == [AT, AT + 3, AT + 6, AT + 9]
    assert await claim(database, worker, limits=limits) is None


async def test_what_waits_for_a_limit_can_be_cancelled_and_steered(database: Database, worker: WorkerId) -> None:
    limits = Limits(per_user=1)
    first, second = [await accepted(database, at=AT + number) for number in range(2)]
    running = await claimed(database, worker, limits=limits)
    assert running.run.id == first.id
    steered = await database.write(accept_turn, new_turn(continues=second.id, at=AT + 5))
    assert steered.is_steering
    cancelled = await database.write(cancel_run, second.id, OWNER, at=AT + 6)
    assert cancelled.status is RunStatus.CANCELLED
    await end(database, running)
    assert await claim(database, worker, limits=limits) is None


@every_limit
async def test_what_a_dead_worker_ran_counts_until_it_is_buried(
    database: Database, database_url: str, worker: WorkerId, limits: Limits
) -> None:
    for number in range(3):
        await accepted(database, at=AT + number)
    dead = registered(database_url)
    runs = [(await claimed(database, dead, limits=limits)).run.id for _ in range(2)]
    assert await claim(database, worker, limits=limits) is None
    engine = sync_engine(database_url)
    with engine.begin() as connection:
        assert bury(connection, dead, 0) is not None
    engine.dispose()
    assert [(await claimed(database, worker, limits=limits)).run.id for _ in range(2)] == runs
    assert await claim(database, worker, limits=limits) is None


async def test_a_limit_that_was_lowered_lets_what_runs_go_on(database: Database, worker: WorkerId) -> None:
    for number in range(4):
        await accepted(database, at=AT + number)
    running = [await claimed(database, worker, limits=Limits(per_user=3)) for _ in range(3)]
    lower = Limits(per_user=2)
    for ended in running[:2]:
        assert await claim(database, worker, limits=lower) is None
        await end(database, ended)
    await claimed(database, worker, limits=lower)


async def test_a_tenant_that_is_passed_over_comes_last(database: Database, worker: WorkerId) -> None:
    """Whatever runs: both have nothing running, and the one has waited longer."""
    await accepted(database, tenant_id="large", at=AT)
    await accepted(database, tenant_id="small", at=AT + 1)
    assert (await claimed(database, worker, passing_over="large")).run.tenant_id == "small"
    assert (await claimed(database, worker, passing_over="large")).run.tenant_id == "large"
    assert await claim(database, worker, passing_over="large") is None
