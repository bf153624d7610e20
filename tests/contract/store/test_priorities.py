"""Priority classes: who goes first among those that wait, and that nobody waits for ever."""

import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection
from tests.contract.store.states import (
    AT,
    OWNER,
    accepted,
    claimed,
    completed,
    held,
    new_turn,
    registered,
    run_row,
    settle,
)

from runyard.db.claims import give_back
from runyard.db.depth import take_census
from runyard.db.engine import Database
from runyard.db.tables import agent_runs
from runyard.ids import WorkerId
from runyard.lifecycle.accept import accept_turn
from runyard.lifecycle.cancelling import cancel_run
from runyard.priorities import PENALTY_MS, Priority
from runyard.runs import RunStatus

pytestmark = pytest.mark.anyio

PENALTY = PENALTY_MS[Priority.BACKGROUND]


@pytest.fixture
def worker(database_url: str) -> WorkerId:
    return registered(database_url)


async def test_background_calls_go_behind_what_comes_within_an_hour_and_ahead_of_the_rest(
    database: Database, worker: WorkerId
) -> None:
    background = await accepted(database, at=AT, priority=Priority.BACKGROUND)
    before = await accepted(database, at=AT + PENALTY - 1)
    after = await accepted(database, at=AT + PENALTY + 1)
    late = await accepted(database, at=AT + 1, priority=Priority.BACKGROUND)
    order = [(await claimed(database, worker)).run.id for _ in range(4)]
    assert order[0] == before.id
    assert order[1] == background.id
    assert set(order[2:]) == {after.id, late.id}
    assert (background.rank, background.priority) == (AT + PENALTY, Priority.BACKGROUND)
    assert (before.rank, before.priority) == (AT + PENALTY - 1, Priority.INTERACTIVE)


async def test_a_tenant_with_fewer_running_runs_goes_first_whatever_the_class(
    database: Database, worker: WorkerId
) -> None:
    await accepted(database, tenant_id="large", at=AT)
    await claimed(database, worker)
    await accepted(database, tenant_id="large", at=AT + 1)
    await accepted(database, tenant_id="small", at=AT + 2, priority=Priority.BACKGROUND)
    assert (await claimed(database, worker)).run.tenant_id == "small"


async def test_each_call_on_a_run_has_a_class_of_its_own(database: Database, worker: WorkerId) -> None:
    run = await accepted(database, at=AT, priority=Priority.BACKGROUND)
    await database.write(settle, held(await claimed(database, worker)), completed(), at=AT + 5)
    await database.write(accept_turn, new_turn(continues=run.id, at=AT + 10))
    row = await run_row(database, run.id)
    assert (row.priority, row.rank) == (Priority.INTERACTIVE, AT + 10)


async def test_a_run_that_is_given_back_keeps_its_place_and_its_class(database: Database, worker: WorkerId) -> None:
    run = await accepted(database, at=AT, priority=Priority.BACKGROUND)
    found = await claimed(database, worker)
    assert await database.write(give_back, run.id, found.run.generation) is not None
    row = await run_row(database, run.id)
    assert (row.status, row.priority, row.rank) == (RunStatus.QUEUED, Priority.BACKGROUND, AT + PENALTY)


async def test_a_call_that_takes_the_place_of_what_runs_has_its_own_class(database: Database, worker: WorkerId) -> None:
    run = await accepted(database, at=AT)
    found = await claimed(database, worker)
    await database.write(
        accept_turn, new_turn(continues=run.id, at=AT + 20, if_busy="cancel", priority=Priority.BACKGROUND)
    )
    await database.write(settle, held(found), completed(), at=AT + 30)
    row = await run_row(database, run.id)
    assert (row.status, row.priority, row.rank) == (RunStatus.QUEUED, Priority.BACKGROUND, AT + 20 + PENALTY)


async def test_a_call_that_is_next_keeps_its_class_when_a_queued_one_is_cancelled(
    database: Database, worker: WorkerId
) -> None:
    """Its worker died after a replacement was accepted, and before it heard of it."""
    run = await accepted(database, at=AT)
    found = await claimed(database, worker)
    await database.write(
        accept_turn, new_turn(continues=run.id, at=AT + 20, if_busy="cancel", priority=Priority.BACKGROUND)
    )
    await database.write(give_back, run.id, found.run.generation)
    await database.write(cancel_run, run.id, OWNER, at=AT + 40)
    row = await run_row(database, run.id)
    assert (row.status, row.priority, row.rank) == (RunStatus.QUEUED, Priority.BACKGROUND, AT + 20 + PENALTY)


async def test_a_class_of_a_later_version_holds_up_nobody(database: Database, worker: WorkerId) -> None:
    """Its processes run beside this one's, and claim and count the same rows."""
    first = await accepted(database, at=AT)

    async def mark(connection: AsyncConnection) -> None:
        await connection.execute(sa.update(agent_runs).values(priority="of_a_later_version"))

    await database.write(mark)
    second = await accepted(database, at=AT + 1)
    census = await database.snapshot(take_census, seen_since=0)
    assert sum(load.runs for load in census.loads if load.priority is Priority.INTERACTIVE) == 2
    assert [(await claimed(database, worker)).run.id for _ in range(2)] == [first.id, second.id]
    assert (await run_row(database, first.id)).priority is Priority.INTERACTIVE
