"""A dead worker's runs go on: put back once, its death counted, whoever notices and whatever it was doing."""

import asyncio
from collections.abc import Iterator
from typing import Any

import anyio
import pytest
import sqlalchemy as sa
from tests.contract.store.races import GUARD_S, started_and_blocked
from tests.contract.store.states import (
    AT,
    CALLS,
    TOTALS,
    accepted,
    assistant_turn,
    claim,
    claimed,
    completed,
    contents,
    held,
    registered,
    run_and_invocation,
    run_row,
    settle,
)
from tests.databases import transaction

from runyard.db.claims import Claim, GivenBack
from runyard.db.deaths import bury, neighbours
from runyard.db.engine import Database, sync_engine
from runyard.db.tables import workers
from runyard.db.turns import append_turn, start_calls
from runyard.db.workers import beat
from runyard.errors import GenerationLost, WorkerGone
from runyard.ids import WorkerId
from runyard.runs import RunStatus

pytestmark = pytest.mark.anyio


@pytest.fixture
def worker(database_url: str) -> WorkerId:
    return registered(database_url)


@pytest.fixture
async def running(database: Database, worker: WorkerId) -> Claim:
    await accepted(database)
    return await claimed(database, worker)


async def buried(connection: Any, worker: WorkerId, seen_beat: int = 0) -> list[GivenBack] | None:
    """`bury`, which is written for the beat's thread, in the tests' transactions."""
    found: list[GivenBack] | None = await connection.run_sync(bury, worker, seen_beat)
    return found


async def test_a_dead_workers_runs_are_put_back(database: Database, database_url: str, worker: WorkerId) -> None:
    other = registered(database_url)
    for number in range(3):
        await accepted(database, at=AT + number)
    mine = [await claimed(database, worker) for _ in range(2)]
    theirs = await claimed(database, other)
    given_back = await database.write(buried, worker)
    assert given_back is not None
    assert sorted(item.run_id for item in given_back) == sorted(found.run.id for found in mine)
    assert {(item.invocation_id, item.queue) for item in given_back} == {
        (found.invocation.id, "default") for found in mine
    }
    for found in mine:
        run, invocation = await run_and_invocation(database, found.run.id)
        assert (run.status, run.worker_id, run.generation) == (RunStatus.QUEUED, None, found.run.generation + 1)
        assert (invocation.status, invocation.deaths) == (RunStatus.QUEUED, [[]])
    assert await run_row(database, theirs.run.id) == theirs.run
    assert [row_id for row_id in (await contents(database))["workers"] if worker in row_id] == []
    assert (await claimed(database, other)).is_takeover


async def test_each_death_names_the_tools_that_had_started(
    database: Database, database_url: str, running: Claim, worker: WorkerId
) -> None:
    calls = [*CALLS, CALLS[0]]
    await database.write(append_turn, held(running), assistant_turn(), calls, TOTALS, at=AT)
    await database.write(start_calls, held(running), 2, starting=[0, 2], finished=[], at=AT)
    await database.write(buried, worker)
    again = registered(database_url)
    await claimed(database, again)
    await database.write(buried, again)
    _, invocation = await run_and_invocation(database, running.run.id)
    assert invocation.deaths == [["search_docs"], ["search_docs"]]


async def test_a_worker_that_has_beaten_since_lives(
    database: Database, rival: Database, running: Claim, worker: WorkerId
) -> None:
    async with transaction(database) as connection:
        await connection.run_sync(beat, worker)
        async with started_and_blocked(rival, rival.write(buried, worker)) as task:
            await connection.commit()
    assert task.result() is None
    before = await contents(database)
    assert await database.write(buried, worker, 0) is None
    assert await database.write(buried, worker, 2) is None
    assert await contents(database) == before
    assert await run_row(database, running.run.id) == running.run


async def test_a_worker_is_buried_once(database: Database, rival: Database, running: Claim, worker: WorkerId) -> None:
    async with transaction(database) as connection:
        assert await buried(connection, worker) is not None
        async with started_and_blocked(rival, rival.write(buried, worker)) as task:
            await connection.commit()
    assert task.result() is None
    run, invocation = await run_and_invocation(database, running.run.id)
    assert (run.generation, invocation.deaths) == (2, [[]])


async def test_a_worker_that_wakes_in_its_grave_is_told(
    database: Database, rival: Database, running: Claim, worker: WorkerId
) -> None:
    async with transaction(database) as connection:
        await buried(connection, worker)
        async with started_and_blocked(rival, rival.write(beat_of, worker)) as beating:
            await connection.commit()
    assert isinstance(beating.exception(), WorkerGone)
    with pytest.raises(GenerationLost):
        await database.write(settle, held(running), completed(), at=AT)


async def test_a_run_that_settles_meanwhile_is_left_alone(
    database: Database, rival: Database, running: Claim, worker: WorkerId
) -> None:
    async with transaction(database) as connection:
        await settle(connection, held(running), completed(), at=AT)
        async with started_and_blocked(rival, rival.write(buried, worker)) as task:
            await connection.commit()
    assert task.result() == []
    run, invocation = await run_and_invocation(database, running.run.id)
    assert (run.status, run.generation, invocation.deaths) == (RunStatus.COMPLETED, 1, [])


async def test_a_claim_under_way_is_put_back_or_refused(
    database: Database, rival: Database, database_url: str, worker: WorkerId
) -> None:
    """No order of a worker's last claim and its burial leaves a run with a worker that is not there."""
    run = await accepted(database)
    async with transaction(rival) as connection:
        held = sa.select(workers.c.id).where(workers.c.id == worker).with_for_update()
        await connection.execute(held)  # so that both others wait for it, each as soon as it is there
        claiming = asyncio.ensure_future(claim(database, worker))
        burying = asyncio.ensure_future(database.write(buried, worker, 0))
        await connection.commit()
    with anyio.fail_after(GUARD_S):
        await asyncio.wait([claiming, burying])
    outcome = claiming.exception()
    assert outcome is None or isinstance(outcome, WorkerGone)
    row = await run_row(database, run.id)
    assert (row.status, row.worker_id) == (RunStatus.QUEUED, None)
    assert row.generation == (0 if outcome else 2)


def test_neighbours_are_those_whose_ids_follow(database_url: str, connection: sa.Connection) -> None:
    ids = sorted(registered(database_url) for _ in range(10))
    assert [worker for worker, _ in neighbours(connection, "")] == ids[:8]
    assert neighbours(connection, ids[6]) == [(worker, 0) for worker in ids[7:]]
    assert neighbours(connection, ids[9]) == []


@pytest.fixture
def connection(database_url: str) -> Iterator[sa.Connection]:
    engine = sync_engine(database_url)
    with engine.connect() as connection:
        connection.execution_options(runyard_read=True)
        yield connection
    engine.dispose()


async def beat_of(connection: Any, worker: WorkerId) -> object:
    return await connection.run_sync(beat, worker)
