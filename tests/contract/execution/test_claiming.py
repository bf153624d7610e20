"""Claims into free slots: with a message, without one, and while the worker leaves."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest
import sqlalchemy as sa
from tests.contract.execution.crew import give_back_all
from tests.contract.execution.worker import GUARD_S, Worker
from tests.contract.store import states
from tests.databases import transaction
from tests.fakes.databases import Fault
from tests.fakes.provider import says
from tests.fakes.publisher import FakePublisher

from runyard.db import claiming, claims
from runyard.db.claims import give_back
from runyard.db.limits import NO_LIMITS
from runyard.db.tables import agent_inputs, agent_invocations
from runyard.db.transcripts import append, user_row
from runyard.ids import new_worker_id
from runyard.lifecycle.accept import accept_turn
from runyard.runs import RunStatus
from runyard_workers import claimer as claimer_module
from runyard_workers.claimer import Claimer
from runyard_workers.runner import Runner
from runyard_workers.shares import Shares
from runyard_workers.slots import SlotPool

pytestmark = pytest.mark.anyio

CLAIMS = (claiming.take_usual, claims.take)
"""The transactions that a claim may be: the first, which only Postgres has, or else the second."""


class FakeBeat:
    def __init__(self, worker_id: Any) -> None:
        self.worker_id = worker_id


class Crew:
    """A claimer and a runner with three slots, on a worker's core. Every run says one word and ends."""

    def __init__(self, worker: Worker) -> None:
        worker.script(says("Hi."))
        self.worker = worker
        self.slots = SlotPool(3)
        self.slots.open()
        self.beat = FakeBeat(worker.worker_id)
        self.runner = Runner(worker.services, self.slots, FakePublisher())
        self.claimer = Claimer(
            worker.services,
            self.beat,
            self.slots,
            self.runner,
            queues=("default",),
            limits=NO_LIMITS,
            shares=Shares(worker.database, slots=3, queues=["default"], agents=["researcher"], limits=NO_LIMITS),
        )

    async def claim(self) -> bool:
        assert self.slots.reserve(0)
        async with asyncio.timeout(GUARD_S):
            return await self.claimer.claim_into_slot()

    async def all_slots_free(self) -> None:
        async with asyncio.timeout(GUARD_S):
            await self.runner.left()
        assert [self.slots.reserve(0) for _ in range(4)] == [True, True, True, False]

    @contextlib.asynccontextmanager
    async def claiming(self) -> AsyncIterator[asyncio.Task[None]]:
        task = asyncio.create_task(self.claimer.run())
        yield task
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


@pytest.fixture
async def crew(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> Crew:
    monkeypatch.setattr(claimer_module, "WITHOUT_MESSAGE_S", 0.005)
    return Crew(worker)


async def settled(crew: Crew, count: int) -> None:
    """Until so many runs have been executed."""
    while crew.worker.database.written.count("end_turn") < count:
        await crew.worker.database.wrote_next()


async def test_a_claim_executes_the_run_and_frees_its_slot(crew: Crew) -> None:
    run = await states.accepted(crew.worker.database)
    assert await crew.claim()
    await crew.all_slots_free()
    assert (await states.run_row(crew.worker.database, run.id)).status is RunStatus.COMPLETED


async def test_a_claim_that_finds_nothing_frees_its_slot(crew: Crew) -> None:
    assert not await crew.claim()
    await crew.all_slots_free()


async def test_a_message_is_over_when_its_claim_is(crew: Crew) -> None:
    run = await states.accepted(crew.worker.database)
    assert crew.slots.reserve(0)
    await asyncio.wait_for(asyncio.to_thread(crew.claimer.on_wake), GUARD_S)
    assert (await states.run_row(crew.worker.database, run.id)).status is not RunStatus.QUEUED
    await crew.all_slots_free()


async def test_a_worker_whose_row_is_gone_claims_nothing(crew: Crew) -> None:
    run = await states.accepted(crew.worker.database)
    crew.beat.worker_id = new_worker_id()
    assert not await crew.claim()
    await crew.all_slots_free()
    assert (await states.run_row(crew.worker.database, run.id)).status is RunStatus.QUEUED


@pytest.mark.parametrize("damage", ["a row too many", "no invocation"])
async def test_a_run_that_cannot_begin_fails_and_the_others_go_on(crew: Crew, damage: str) -> None:
    """As after a restore of half a database: it would stand in front of everybody's runs for ever."""
    database = crew.worker.database
    broken, sound = [await states.accepted(database) for _ in range(2)]
    if damage == "no invocation":
        async with transaction(database) as connection:
            await connection.execute(sa.delete(agent_inputs).where(agent_inputs.c.run_id == broken.id))
            await connection.execute(sa.delete(agent_invocations).where(agent_invocations.c.run_id == broken.id))
            await connection.commit()
    else:
        row = user_row(broken.id, broken.newest_invocation, 1, "of a later day", at=1)
        await database.write(append, row)
    async with crew.claiming():
        await settled(crew, 1)
    await crew.all_slots_free()
    assert (await states.run_row(database, sound.id)).status is RunStatus.COMPLETED
    failed = await states.run_row(database, broken.id)
    assert (failed.status, failed.worker_id) == (RunStatus.FAILED, None)
    assert failed.error == {
        "code": "INTERNAL",
        "message": "The rows of the run do not fit together",
        "retryable": False,
    }
    if damage == "a row too many":
        _, invocation = await states.run_and_invocation(database, broken.id)
        assert (invocation.status, invocation.error) == (RunStatus.FAILED, failed.error)
        assert invocation.result is not None
        assert invocation.result["status"] == "failed"


async def test_a_call_that_waits_behind_one_that_cannot_begin_is_begun(crew: Crew) -> None:
    """It would wait until a person looked."""
    database = crew.worker.database
    run = await states.accepted(database)
    found = await states.claimed(database, crew.worker.worker_id)
    next_turn = states.new_turn(continues=run.id, if_busy="cancel")
    assert (await database.write(accept_turn, next_turn)).waits_for_end
    assert await database.write(give_back, run.id, found.run.generation) is not None
    async with transaction(database) as connection:
        await connection.execute(sa.delete(agent_invocations).where(agent_invocations.c.id == run.invocation_id))
        await connection.commit()
    async with crew.claiming():
        await settled(crew, 1)
    await crew.all_slots_free()
    after, invocation = await states.run_and_invocation(database, run.id)
    assert (after.status, after.error, after.invocation_id) == (RunStatus.COMPLETED, None, next_turn.invocation_id)
    assert invocation.status is RunStatus.COMPLETED


@pytest.mark.parametrize("error", ["away", "unforeseen"])
async def test_a_claim_that_fails_frees_its_slot(crew: Crew, error: str) -> None:
    await states.accepted(crew.worker.database)

    async def fail() -> None:
        raise RuntimeError("unforeseen")

    for work in CLAIMS:
        if error == "away":
            crew.worker.database.faults[work] = [Fault.AWAY]
        else:
            crew.worker.database.before[work] = fail
    assert not await crew.claim()
    await crew.all_slots_free()


async def test_runs_that_nobody_announced_are_found(crew: Crew) -> None:
    for _ in range(5):
        await states.accepted(crew.worker.database)
    async with crew.claiming():
        await settled(crew, 5)
    await crew.all_slots_free()


async def test_a_full_worker_claims_no_more(crew: Crew) -> None:
    crew.worker.script([asyncio.Event()])
    crew.runner._services = crew.worker.services
    for _ in range(4):
        await states.accepted(crew.worker.database)
    async with crew.claiming():
        async with asyncio.timeout(GUARD_S):
            while len(crew.worker.provider.requests) < 3:
                crew.worker.provider.asked.clear()
                await crew.worker.provider.asked.wait()
        assert not crew.slots.available()
    await give_back_all(crew.runner)
    await crew.all_slots_free()


async def test_a_claim_under_way_is_finished_before_the_worker_leaves(crew: Crew) -> None:
    run = await states.accepted(crew.worker.database)
    claiming, go_on = asyncio.Event(), asyncio.Event()

    async def hold() -> None:
        claiming.set()
        await go_on.wait()

    crew.worker.database.before |= dict.fromkeys(CLAIMS, hold)
    async with crew.claiming() as task:
        async with asyncio.timeout(GUARD_S):
            await claiming.wait()
        task.cancel()
        await asyncio.sleep(0)
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await task
    await give_back_all(crew.runner)
    await crew.all_slots_free()
    left = await states.run_row(crew.worker.database, run.id)
    assert (left.status, left.worker_id, left.generation) == (RunStatus.QUEUED, None, 2)
