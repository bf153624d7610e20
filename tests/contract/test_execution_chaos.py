"""Whatever fails in whatever order, a run ends, nothing acts twice, and a reader who followed it has the rows' text."""

import asyncio
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies as st
from tests.contract import store
from tests.contract.redis_losses import forget_all, forget_newest
from tests.contract.worker import GUARD_S, Reader, Worker
from tests.fakes.databases import Fault
from tests.fakes.provider import asks, says
from tests.fakes.rows import tool_use

from runyard import RunContext, tool
from runyard.db import boundaries, claims, turns
from runyard.db.records import Run
from runyard.errors import GenerationLost
from runyard.runs import RunStatus
from runyard.transcript import INTERRUPTED
from runyard_workers import output
from runyard_workers.stream_writer import StreamWriter

pytestmark = pytest.mark.anyio

COMMITS = [
    turns.append_turn,
    turns.start_calls,
    turns.finish_call,
    boundaries.append_results,
    boundaries.end_turn,
]
AWAY_S = 0.02

faults = st.lists(st.tuples(st.sampled_from([*COMMITS, turns.set_frame_base]), st.sampled_from(Fault)), max_size=4)
thefts = st.lists(st.sampled_from(COMMITS), max_size=2, unique=True)
troubles = st.lists(st.sampled_from(["none", "away", "forgets all", "forgets newest"]), max_size=6)


class Follower:
    """A reader that is never far behind."""

    def __init__(self, worker: Worker, stream_id: str) -> None:
        self.reader = Reader()
        self.is_at_the_end = False
        self._worker, self._stream_id = worker, stream_id

    async def follow(self) -> None:
        while not self.is_at_the_end:
            for frame in await self._worker.store.read(self._stream_id, self.reader.last):
                self.reader.feed(frame)
                self.is_at_the_end = frame.is_terminal
            await asyncio.sleep(0.001)


class Effects:
    """Tools that note each execution under its key."""

    def __init__(self) -> None:
        self.paid: list[str | None] = []
        self.fetched: list[str | None] = []

        @tool
        async def pay(ctx: RunContext) -> str:
            ctx.stream.write("paying")
            self.paid.append(ctx.idempotency_key)
            return "paid"

        @tool(idempotent=True)
        def fetch(ctx: RunContext) -> str:
            self.fetched.append(ctx.idempotency_key)
            return "fetched"

        self.tools = [pay, fetch]


class Troubles:
    """What happens to Redis at each model call, and who takes the run away at which commit."""

    def __init__(self, worker: Worker, run: Run, stream_id: str, redis: list[str], thefts: list[Any]) -> None:
        self._worker, self._run, self._stream_id = worker, run, stream_id
        self._redis = list(redis)
        for work in thefts:
            worker.database.before[work] = self.steal

    async def strike(self) -> None:
        worker, name = self._worker, self._redis.pop(0) if self._redis else "none"
        if name == "away":
            worker.store.away = True
            asyncio.get_running_loop().call_later(AWAY_S, lambda: setattr(worker.store, "away", False))
        elif name != "none":
            worker.server.now = f"{worker.server.now}+"  # only a restart forgets
            await (forget_all if name == "forgets all" else forget_newest)(worker, self._stream_id)

    async def steal(self) -> None:
        now = await store.run_row(self._worker.database, self._run.id)
        await self._worker.database.write(claims.give_back, now.id, now.generation)


@hypothesis.given(faults=faults, thefts=thefts, redis=troubles)
@hypothesis.settings(
    deadline=None, max_examples=25, suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture]
)
async def test_a_run_in_trouble(
    worker: Worker, faults: list[tuple[Any, Fault]], thefts: list[Any], redis: list[str]
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(output, "FLUSH_BEFORE_COMMIT_S", 0.005)
        patch.setattr(StreamWriter.opened, "__defaults__", (0.01,))
        await in_trouble(worker, faults, thefts, redis)


async def in_trouble(worker: Worker, faults: list[tuple[Any, Fault]], thefts: list[Any], redis: list[str]) -> None:
    effects = Effects()
    run = await store.accepted(worker.database)
    invocation = await worker.database.read(turns.load_invocation, run.invocation_id)
    troubles = Troubles(worker, run, invocation.stream_id, redis, thefts)
    steps = [
        asks(tool_use(f"a{step}", "pay"), tool_use(f"b{step}", "fetch"), saying=f"Step {step}. ") for step in range(2)
    ]
    worker.script(*([step[0], troubles.strike, *step[1:]] for step in [*steps, says("Paid ", "twice.")]))
    worker.agent = type(worker.agent)(**{**vars(worker.agent), "tools": tuple(effects.tools)})
    worker.database.faults = {work: [fault for name, fault in faults if name is work] for work, _ in faults}
    follower = Follower(worker, invocation.stream_id)
    following = asyncio.create_task(follower.follow())
    async with asyncio.timeout(GUARD_S):
        while True:
            try:
                await worker.execution(await worker.claim_queued()).run()
                break
            except GenerationLost:
                continue
        settled = await worker.settled(run.id)
        await following
    worker.database.before.clear()
    settled.check()
    assert settled.run.status is RunStatus.COMPLETED
    assert settled.result["text"] == "Paid twice."
    assert follower.reader.text == "Step 0. Step 1. Paid twice."
    assert len(effects.paid) == len(set(effects.paid)) == 2
    assert len(set(effects.fetched)) == 2
    told = [result["content"] for result in settled.results]
    assert {told[0], told[2]} <= {"paid", INTERRUPTED}
    assert (told[1], told[3]) == ("fetched", "fetched")
