"""The beat's thread on real databases: it shows life, tells what is stored, and takes the dead away."""

import asyncio
import contextlib
import sys
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

import pytest
import sqlalchemy as sa
from tests.contract.store.races import GUARD_S
from tests.contract.store.states import AT, accepted, claimed, registered, run_and_invocation

from runyard.db.claims import GivenBack
from runyard.db.engine import Database, sync_engine
from runyard.db.tables import workers
from runyard.db.workers import OwnRun, Registration
from runyard.ids import WorkerId, new_worker_id
from runyard.runs import RunStatus
from runyard_workers import beat as beat_module
from runyard_workers.beat import STUCK_EXIT_CODE, Beat
from runyard_workers.liveness import Liveness

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every test waits for what happens; seconds become hundredths. The event loop is watched by one test only."""
    monkeypatch.setattr("runyard_workers.beat.STUCK_ROUNDS", sys.maxsize)
    monkeypatch.setattr("runyard_workers.beat.ROUND_S", 0.01)
    monkeypatch.setattr("runyard_workers.ring.DEAD_AFTER_S", 0.08)


@dataclass
class Heart:
    """A beat, and what it has told the event loop."""

    beats: asyncio.Queue[list[OwnRun]] = field(default_factory=asyncio.Queue)
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    given_back: asyncio.Queue[list[GivenBack]] = field(default_factory=asyncio.Queue)

    @contextlib.asynccontextmanager
    async def beating(self, database_url: str) -> AsyncIterator[Beat]:
        beat = Beat(
            database_url,
            registration,
            liveness=Liveness(),
            on_beat=self.beats.put_nowait,
            on_gone=self.gone.set,
            on_given_back=self.given_back.put_nowait,
        )
        await asyncio.to_thread(beat.start)
        try:
            async with asyncio.timeout(GUARD_S):
                yield beat
        finally:
            await asyncio.to_thread(beat.stop)

    async def tells(self, holds: Callable[[list[OwnRun]], bool]) -> None:
        while not holds(await self.beats.get()):
            pass


def registration() -> Registration:
    return Registration(worker_id=new_worker_id(), host="host:1", slots=1, queues=("default",), manifests={})


async def beats_stored(database: Database) -> dict[WorkerId, int]:
    async def read(connection: sa.ext.asyncio.AsyncConnection) -> dict[WorkerId, int]:
        return {row.id: row.beat for row in await connection.execute(sa.select(workers))}

    return await database.read(read)


async def test_a_beat_tells_which_runs_are_stored_as_its_own(database: Database, database_url: str) -> None:
    heart = Heart()
    async with heart.beating(database_url) as beat:
        await heart.tells(lambda runs: runs == [])
        run = await accepted(database)
        claim = await claimed(database, beat.worker_id)
        await heart.tells(lambda runs: [(own.id, own.generation) for own in runs] == [(run.id, claim.run.generation)])
        assert (await beats_stored(database))[beat.worker_id] >= 2


async def test_who_leaves_takes_its_row_along(database: Database, database_url: str) -> None:
    heart = Heart()
    async with heart.beating(database_url) as beat:
        assert list(await beats_stored(database)) == [beat.worker_id]
    assert await beats_stored(database) == {}


async def test_a_worker_that_was_taken_for_dead_begins_anew_under_another_id(
    database: Database, database_url: str
) -> None:
    heart = Heart()

    async def delete(connection: sa.ext.asyncio.AsyncConnection) -> None:
        await connection.execute(sa.delete(workers))

    async with heart.beating(database_url) as beat:
        first = beat.worker_id
        await database.write(delete)
        await heart.gone.wait()
        await heart.tells(lambda _: beat.worker_id != first)
        assert list(await beats_stored(database)) == [beat.worker_id]


async def test_a_silent_worker_is_buried_and_its_runs_are_told(database: Database, database_url: str) -> None:
    silent = registered(database_url)
    for number in range(2):
        await accepted(database, at=AT + number)
    claims = [await claimed(database, silent) for _ in range(2)]
    heart = Heart()
    async with heart.beating(database_url) as beat:
        given_back = await heart.given_back.get()
        assert {each.run_id for each in given_back} == {claim.run.id for claim in claims}
        assert list(await beats_stored(database)) == [beat.worker_id]
    for claim in claims:
        run, invocation = await run_and_invocation(database, claim.run.id)
        assert (run.status, run.generation) == (RunStatus.QUEUED, claim.run.generation + 1)
        assert invocation.deaths == [[]]


async def test_a_process_whose_event_loop_is_stuck_ends(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    loop = asyncio.get_running_loop()
    codes: asyncio.Queue[int] = asyncio.Queue()
    monkeypatch.setattr(beat_module.os, "_exit", lambda code: loop.call_soon_threadsafe(codes.put_nowait, code))
    monkeypatch.setattr(beat_module, "STUCK_ROUNDS", 5)
    async with Heart().beating(database_url) as beat:
        beat.tick()
        assert await codes.get() == STUCK_EXIT_CODE


async def test_a_tool_that_holds_the_event_loop_does_not_stop_the_beat(database_url: str) -> None:
    """Its worker is slow, not dead: nobody takes over what it runs."""
    async with Heart().beating(database_url) as beat:
        engine = sync_engine(database_url)
        before, deadline = beat_of(engine, beat.worker_id), time.monotonic() + GUARD_S
        while beat_of(engine, beat.worker_id) < before + 3:  # all that happens on the loop, as it is for a tool's sleep
            assert time.monotonic() < deadline
            time.sleep(0.01)  # noqa: ASYNC251 - holding the loop is the case
        engine.dispose()


def beat_of(engine: sa.Engine, worker_id: str) -> int:
    with engine.connect() as connection:
        return int(connection.execute(sa.select(workers.c.beat).where(workers.c.id == worker_id)).scalar_one())
