"""A full worker shares its slots among tenants: runs make way at turn boundaries, counted in steps, not in seconds."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator

import pytest
from tests.contract.execution.crew import give_back_all
from tests.contract.execution.test_claiming import FakeBeat
from tests.contract.execution.worker import GUARD_S, Worker
from tests.contract.store import states
from tests.fakes.databases import Fault
from tests.fakes.provider import asks, says
from tests.fakes.publisher import FakePublisher
from tests.fakes.rows import tool_use

from runyard import RunContext, tool
from runyard.db import groups
from runyard.db.limits import NO_LIMITS, Limits
from runyard.lifecycle.accept import accept_turn
from runyard.metrics import REGISTRY
from runyard.runs import RunStatus
from runyard_workers import claimer as claimer_module
from runyard_workers.claimer import Claimer
from runyard_workers.runner import Runner
from runyard_workers.shares import LOOK_S, Shares
from runyard_workers.slots import SlotPool

pytestmark = pytest.mark.anyio

STEPS = 40
"""Of each run, which is more than any test lets it make."""


class Full:
    """A worker all of whose runs take steps in time with each other: one step each, when the test says so."""

    def __init__(self, worker: Worker, *, slots: int, limits: Limits = NO_LIMITS) -> None:
        self.worker = worker
        self.now = 0.0
        self.steps: Counter[str] = Counter()
        """Taken so far, by tenant."""

        self.standing: set[str] = set()
        """The runs that stand in a step."""

        self.claiming: asyncio.Task[None]
        self._beat = asyncio.Condition()
        self._round = 0
        step = tool(self._step, name="step")
        worker.script(*[asks(tool_use(f"toolu_{number}", "step")) for number in range(STEPS)], says("x"), tools=[step])
        self.slots = SlotPool(slots)
        self.slots.open()
        shares = Shares(
            worker.database,
            slots=slots,
            queues=["default"],
            agents=["researcher"],
            limits=limits,
            clock=lambda: self.now,
        )
        self.runner = Runner(worker.services, self.slots, FakePublisher(), must_yield=shares.must_yield)
        beat = FakeBeat(worker.worker_id)
        self.claimer = Claimer(
            worker.services, beat, self.slots, self.runner, queues=("default",), limits=limits, shares=shares
        )

    async def _step(self, ctx: RunContext) -> str:
        self.steps[ctx.tenant_id] += 1
        async with self._beat:
            self.standing.add(ctx.run_id)
            self._beat.notify_all()
            began = self._round
            await self._beat.wait_for(lambda: self._round > began)
        return "done"

    async def stand(self, count: int) -> None:
        """Until so many runs stand in a step."""
        async with asyncio.timeout(GUARD_S), self._beat:
            await self._beat.wait_for(lambda: len(self.standing) == count)

    async def go_on(self, seconds: float = LOOK_S) -> None:
        """Each run ends its step and comes to its boundary; whoever runs then stands in a step again."""
        count = len(self.standing)
        self.now += seconds
        async with self._beat:
            self.standing.clear()
            self._round += 1
            self._beat.notify_all()
        await self.stand(count)

    def tenants(self) -> Counter[str]:
        """Of the runs that run here."""
        return Counter(task.get_name().split(":")[0] for task in self.runner._tasks.values())


@pytest.fixture
async def opened(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[list[Full]]:
    monkeypatch.setattr(claimer_module, "WITHOUT_MESSAGE_S", 0.005)
    monkeypatch.setattr(claimer_module, "FULL_POLL_S", 0.005)
    fulls: list[Full] = []
    yield fulls
    for full in fulls:
        full.slots.close()
        full.claiming.cancel()
        await asyncio.gather(full.claiming, return_exceptions=True)
        await give_back_all(full.runner)


async def full(worker: Worker, opened: list[Full], *, slots: int, queued: dict[str, int], **options: Limits) -> Full:
    """A worker whose slots are all taken, of tenants with so many queued runs, in that order."""
    made = Full(worker, slots=slots, **options)
    opened.append(made)
    number = 0
    for tenant, runs in queued.items():
        for _ in range(runs):
            number += 1
            await arrives(made, tenant, number)
    made.claiming = asyncio.create_task(made.claimer.run())
    await made.stand(slots)
    return made


async def arrives(made: Full, tenant: str, number: int) -> None:
    turn = states.new_turn(tenant_id=tenant, run_id=f"{tenant}:{number:04}", at=states.AT + number)
    await made.worker.database.write(accept_turn, turn)


@pytest.mark.parametrize("slots", [1, 3])
async def test_behind_500_runs_of_one_tenant_another_starts_within_two_steps(
    worker: Worker, opened: list[Full], slots: int
) -> None:
    made = await full(worker, opened, slots=slots, queued={"large": 500})
    for _ in range(3):
        await made.go_on()
    assert made.tenants() == {"large": slots}
    await arrives(made, "small", 501)
    steps = made.steps["large"]
    while not made.steps["small"]:
        assert made.steps["large"] - steps <= 2 * slots
        await made.go_on()
    assert made.steps["large"] - steps <= 2 * slots
    assert made.tenants() == Counter(small=1, large=slots - 1)


async def test_one_run_a_second_makes_way_until_all_have_their_share(worker: Worker, opened: list[Full]) -> None:
    made = await full(worker, opened, slots=6, queued={"large": 12})
    for number in range(6):
        await arrives(made, "small", 100 + number)
    shares, yields = [0], REGISTRY.get_sample_value("runyard_yields_total") or 0
    while shares[-1] < 3:  # in a second in which one of `small` is the first to look, all others may have passed
        await made.go_on()
        shares.append(made.tenants()["small"])
    assert sorted(set(shares)) == [0, 1, 2, 3], "one at a time"
    for _ in range(3):
        await made.go_on()
    assert REGISTRY.get_sample_value("runyard_yields_total") == yields + 3
    assert made.tenants() == Counter(small=3, large=3)


async def test_no_more_than_one_in_a_second(worker: Worker, opened: list[Full]) -> None:
    made = await full(worker, opened, slots=6, queued={"large": 12})
    for number in range(6):
        await arrives(made, "small", 100 + number)
    for _ in range(5):
        await made.go_on(seconds=LOOK_S / 5)
    assert made.tenants()["small"] == 1


async def test_a_run_that_makes_way_goes_on_later_where_it_stood(worker: Worker, opened: list[Full]) -> None:
    made = await full(worker, opened, slots=1, queued={"large": 1})
    await made.go_on()
    await arrives(made, "small", 10)
    await made.go_on()
    assert made.tenants() == Counter(small=1)
    row = await states.run_row(worker.database, "large:0001")
    assert (row.status, row.rank) == (RunStatus.QUEUED, states.AT + 1)
    await made.go_on()
    assert made.tenants() == Counter(large=1), "they take turns: each has its share"
    assert made.steps["large"] == 3
    run, invocation = await states.run_and_invocation(worker.database, row.id)
    assert (run.status, invocation.deaths) == (RunStatus.RUNNING, [])


async def test_nobody_makes_way_for_a_run_of_their_own_tenant(worker: Worker, opened: list[Full]) -> None:
    made = await full(worker, opened, slots=2, queued={"large": 6})
    for _ in range(4):
        await made.go_on()
    assert set(made.runner._tasks) == {("large:0001", 1), ("large:0002", 1)}


async def test_nobody_makes_way_while_a_slot_is_free(worker: Worker, opened: list[Full]) -> None:
    made = await full(worker, opened, slots=2, queued={"large": 2})
    made.slots.size += 1
    made.slots.release()
    await arrives(made, "small", 10)
    await made.stand(3)
    await made.go_on()
    assert set(made.runner._tasks) == {("large:0001", 1), ("large:0002", 1), ("small:0010", 1)}


async def test_nobody_makes_way_for_what_may_not_run(worker: Worker, opened: list[Full]) -> None:
    made = await full(worker, opened, slots=2, queued={"large": 6}, limits=Limits(per_agent={"researcher": 2}))
    await arrives(made, "small", 10)
    for _ in range(3):
        await made.go_on()
    assert made.tenants() == Counter(large=2)


async def test_a_database_that_does_not_answer_moves_nothing(worker: Worker, opened: list[Full]) -> None:
    made = await full(worker, opened, slots=2, queued={"large": 6})
    await arrives(made, "small", 10)
    worker.database.faults[groups.queued_groups] = [Fault.AWAY] * 2
    for _ in range(2):
        await made.go_on()
        assert made.tenants() == Counter(large=2)
    await made.go_on()
    assert made.tenants() == Counter(large=1, small=1)
