"""`runyard fsck` on a system at work: what is under way is not broken, what stays as it is for the grace is."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import sqlalchemy as sa
from tests.contract.execution.worker import GUARD_S, Worker
from tests.contract.fsck.inspecting import execute, found, inspection, lookup, rewrite, set_meta
from tests.contract.store import states
from tests.databases import on_postgres
from tests.fakes.provider import asks, says
from tests.fakes.rows import tool_use

from runyard.db.claims import Claim
from runyard.db.deaths import bury
from runyard.db.engine import Database
from runyard.db.tables import agent_runs, workers
from runyard.errors import StoreUnavailable
from runyard.frames import Frame
from runyard.fsck import inspection as inspecting
from runyard.fsck.findings import Code, Finding
from runyard.fsck.inspection import Inspection, Scope
from runyard.lifecycle.accept import accept_turn
from runyard_workers.providers.model import TextDelta

pytestmark = pytest.mark.anyio

RUNS = 8
ROUNDS = 3
BEAT_S = 0.1


@pytest.fixture(autouse=True)
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inspecting, "FIRST_LOOK_S", 0.01)
    monkeypatch.setattr(inspecting, "LOOK_S", 0.01)


async def beat(worker: Worker) -> None:
    await execute(worker, "UPDATE workers SET beat = beat + 1")


@asynccontextmanager
async def looking(
    worker: Worker, suspects: Callable[[Inspection], object]
) -> AsyncIterator[asyncio.Task[list[Finding]]]:
    """An inspection with a long grace that has found something suspect."""
    looks = inspection(worker)

    async def look() -> list[Finding]:
        return [finding async for finding in looks.findings(Scope(grace_s=GUARD_S))]

    task = asyncio.create_task(look())
    async with asyncio.timeout(GUARD_S):
        while not suspects(looks):  # noqa: ASYNC110 - it sets no event
            await asyncio.sleep(0.001)
        yield task
        await task


async def test_a_system_under_load_is_sound(worker: Worker) -> None:
    """Runs in every state, of each of which another row or frame is written all the time."""
    steps = [asks(tool_use(f"a{step}", "lookup"), saying=f"Step {step}: " * 50) for step in range(3)]
    worker.script(*steps, says(*["word "] * 200), tools=[lookup])
    ended = asyncio.Event()

    async def beat_on() -> None:
        while not ended.is_set():
            await beat(worker)
            await asyncio.sleep(BEAT_S)

    async def one_after_the_other() -> None:
        for _ in range(ROUNDS):
            claim = await worker.claim()
            steering = states.new_turn(continues=claim.run.id, content="and that")
            await asyncio.gather(worker.execution(claim).run(), worker.database.write(accept_turn, steering))

    async def look_on() -> int:
        looks = 0
        while not ended.is_set():
            assert await found(worker, grace_s=GUARD_S) == []
            looks += 1
        return looks

    async with asyncio.timeout(4 * GUARD_S), asyncio.TaskGroup() as tasks:
        looks = tasks.create_task(look_on())
        tasks.create_task(beat_on())
        await asyncio.gather(*(one_after_the_other() for _ in range(RUNS)))
        await worker.closer.drained()
        ended.set()
    assert looks.result() > 1
    assert await found(worker) == []


# Workers -----------------------------------------------------------------------------------------------------------


async def test_a_silent_worker_is_told_with_the_runs_it_holds(worker: Worker) -> None:
    claim = await worker.claim()
    for scope in ({}, {"run_id": claim.run.id}):
        (finding,) = await found(worker, **scope)
        assert (finding.code, finding.run_id) == (Code.WORKER_SILENT, claim.run.id)
        assert (finding.worker_id, finding.invocation_id) == (worker.worker_id, claim.invocation.id)


async def test_a_worker_whose_beat_moves_lives(worker: Worker) -> None:
    await worker.claim()
    async with looking(worker, lambda looks: looks._beats.silent) as task:
        await beat(worker)
        assert await task == []


async def test_a_death_that_is_noticed_in_time_is_not_broken(worker: Worker) -> None:
    claim = await worker.claim()

    async def buried(connection: Any) -> None:
        assert await connection.run_sync(lambda sync: bury(sync, worker.worker_id, 0))

    async with looking(worker, lambda looks: looks._beats.silent) as task:
        await worker.database.write(buried)
        assert await task == []
    assert (await states.run_row(worker.database, claim.run.id)).worker_id is None


async def test_a_worker_that_holds_nothing_may_be_silent(worker: Worker) -> None:
    await states.accepted(worker.database)
    assert await found(worker) == []


# Streams -----------------------------------------------------------------------------------------------------------


async def test_a_stream_that_is_closed_within_the_grace_is_not_broken(worker: Worker) -> None:
    worker.script(says("Done."))
    await worker.run()
    await execute(worker, "UPDATE agent_invocations SET stream_closed = FALSE")
    async with looking(worker, lambda looks: looks._suspects) as task:
        await execute(worker, "UPDATE agent_invocations SET stream_closed = TRUE")
        assert await task == []


async def test_a_stream_that_stays_open_is_broken(worker: Worker) -> None:
    worker.script(says("Done."))
    await worker.run()
    await execute(worker, "UPDATE agent_invocations SET stream_closed = FALSE")
    looks = inspection(worker)
    (finding,) = [finding async for finding in looks.findings(Scope(grace_s=0.1))]
    assert finding.code is Code.STREAM_OPEN


@pytest.fixture
async def in_second_answer(worker: Worker) -> AsyncIterator[Claim]:
    """A run that has one answer committed, and shows a second one that is not. Its worker has just beaten."""
    shown, go_on = asyncio.Event(), asyncio.Event()
    second = [TextDelta("Not yet"), shown.set, go_on, *says(" all.")]
    second[-1] = says("Not yet all.")[-1]
    worker.script(asks(tool_use("a", "lookup"), saying="Let me look. "), second, tools=[lookup])
    claim = await worker.claim()
    running = asyncio.create_task(worker.execution(claim).run())
    async with asyncio.timeout(GUARD_S):
        await shown.wait()
        yield claim
        go_on.set()
        await running
        await worker.closer.drained()


def committed_in_capitals(frame: Frame) -> Frame:
    return Frame(frame.seq, frame.event, frame.data.replace(b"Let me look. ", b"LET ME LOOK. "))


def shown_in_capitals(frame: Frame) -> Frame:
    return Frame(frame.seq, frame.event, frame.data.replace(b"Not yet", b"NOT YET"))


async def codes_of_streams(worker: Worker) -> list[str]:
    return [finding.code for finding in await found(worker) if finding.code is not Code.WORKER_SILENT]


async def test_a_running_runs_text_is_compared_as_far_as_it_is_committed(
    worker: Worker, in_second_answer: Claim
) -> None:
    stream_id = in_second_answer.invocation.stream_id
    assert "Not yet" in "".join(str(frame.data) for frame in await worker.seen(in_second_answer))
    assert await codes_of_streams(worker) == []
    await rewrite(worker, stream_id, shown_in_capitals)
    assert await codes_of_streams(worker) == []
    await rewrite(worker, stream_id, committed_in_capitals)
    assert await codes_of_streams(worker) == [Code.STREAM_TEXT]


async def test_frames_that_redis_does_not_have_yet_are_not_missing(worker: Worker, in_second_answer: Claim) -> None:
    stream_id = in_second_answer.invocation.stream_id
    await worker.seen(in_second_answer)
    await rewrite(worker, stream_id, lambda frame: frame if frame.seq <= 2 else None)
    await set_meta(worker, stream_id, last=2)
    assert await codes_of_streams(worker) == []


# A snapshot --------------------------------------------------------------------------------------------------------


async def test_a_snapshot_sees_one_moment(database: Database, rival: Database) -> None:
    async def look(connection: Any) -> tuple[int, int]:
        count = sa.select(sa.func.count()).select_from(agent_runs)
        before = (await connection.execute(count)).scalar_one()
        await states.accepted(rival)
        return before, (await connection.execute(count)).scalar_one()

    assert await database.snapshot(look) == (0, 0)
    assert (await database.snapshot(look)) == (1, 1)


@on_postgres
async def test_a_snapshot_cannot_write(database: Database) -> None:
    async def write(connection: Any) -> None:
        await connection.execute(sa.delete(workers))

    with pytest.raises(StoreUnavailable):
        await database.snapshot(write)
