"""The fence: a worker whose run has changed hands writes nothing, whatever it writes and whenever it wakes."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest
import sqlalchemy as sa
from tests.contract.store.races import started_and_blocked
from tests.contract.store.states import (
    AT,
    CALLS,
    TOTALS,
    accepted,
    assistant_turn,
    claimed,
    completed,
    contents,
    finished,
    held,
    registered,
    run_row,
    settle,
)
from tests.databases import on_postgres, on_sqlite, transaction

from runyard.db import quiet
from runyard.db.boundaries import append_results
from runyard.db.claims import Claim, give_back
from runyard.db.engine import Database
from runyard.db.locks import lock_claimed
from runyard.db.tables import agent_runs
from runyard.db.turns import (
    append_turn,
    finish_call,
    load_calls,
    set_deaths,
    set_frame_base,
    start_calls,
)
from runyard.errors import GenerationLost
from runyard.ids import WorkerId
from runyard.runs import CallState, RunStatus

pytestmark = pytest.mark.anyio

Write = Callable[[Any, Claim], Awaitable[None]]
RESULTS = [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "three pages"}]


async def turn(connection: Any, claim: Claim) -> None:
    await append_turn(connection, held(claim), assistant_turn(4), CALLS, TOTALS, at=AT + 5)


async def start(connection: Any, claim: Claim) -> None:
    await start_calls(connection, held(claim), 2, starting=[0], finished=[finished(1, "no such tool")], at=AT + 5)


async def finish(connection: Any, claim: Claim) -> None:
    await finish_call(connection, held(claim), 2, finished(0), at=AT + 5)


async def results(connection: Any, claim: Claim) -> None:
    await append_results(connection, held(claim), 2, finished=[finished(1)], results=RESULTS, at=AT + 5)


async def end(connection: Any, claim: Claim) -> None:
    await settle(connection, held(claim), completed(), turn=assistant_turn(3), results=RESULTS, at=AT + 5)


async def quiet_results(connection: Any, claim: Claim) -> None:
    stored = await quiet.append_results(
        connection, held(claim), 2, finished=[finished(0), finished(1)], results=RESULTS, at=AT + 5
    )
    if stored is None:
        raise GenerationLost(claim.run.id)


async def quiet_end(connection: Any, claim: Claim) -> None:
    stored = await quiet.end_turn(
        connection,
        held(claim),
        turn=assistant_turn(3),
        results=RESULTS,
        conclude=lambda _rows, _cancelled, _unanswered: completed(),
        totals=TOTALS,
        at=AT + 5,
    )
    if stored is None:
        raise GenerationLost(claim.run.id)


async def deaths(connection: Any, claim: Claim) -> None:
    await set_deaths(connection, held(claim), [["send_mail"]])


async def frame_base(connection: Any, claim: Claim) -> None:
    await set_frame_base(connection, held(claim), 1_000_000, "redis-9")


AT_ONCE = [turn, start, finish, quiet_results, quiet_end, deaths, frame_base]
WRITES = [*AT_ONCE, results, end]
every_write = pytest.mark.parametrize("write", WRITES, ids=lambda write: write.__name__)


@pytest.fixture
def worker(database_url: str) -> WorkerId:
    return registered(database_url)


@pytest.fixture
async def zombie(database: Database, worker: WorkerId) -> Claim:
    """A claim in the middle of a step: the model's turn with two planned calls is stored."""
    await accepted(database)
    claim = await claimed(database, worker)
    await database.write(append_turn, held(claim), assistant_turn(2), CALLS, TOTALS, at=AT + 2)
    return claim


async def hand_over(connection: Any, claim: Claim) -> None:
    assert await give_back(connection, claim.run.id, claim.run.generation) is not None


@every_write
async def test_the_holder_may_write(database: Database, zombie: Claim, write: Write) -> None:
    before = await contents(database)
    await database.write(write, zombie)
    assert await contents(database) != before


async def test_a_run_that_was_given_back_is_refused(database: Database, zombie: Claim) -> None:
    await database.write(hand_over, zombie)
    await refused(database, zombie, *WRITES)


async def test_a_run_that_another_worker_took_over_is_refused(
    database: Database, database_url: str, zombie: Claim
) -> None:
    await database.write(hand_over, zombie)
    await claimed(database, registered(database_url))
    await refused(database, zombie, *WRITES)


async def test_a_run_that_this_worker_claimed_again_is_refused_to_the_older_claim(
    database: Database, worker: WorkerId, zombie: Claim
) -> None:
    await database.write(hand_over, zombie)
    await claimed(database, worker)
    await refused(database, zombie, *WRITES)


async def test_a_settled_run_is_refused(database: Database, zombie: Claim) -> None:
    await database.write(settle, held(zombie), completed(), at=AT + 3)
    await refused(database, zombie, *WRITES)


async def test_a_generation_that_never_was_is_refused(database: Database, zombie: Claim) -> None:
    await refused(database, replace(zombie, run=replace(zombie.run, generation=7)), *WRITES)


@every_write
async def test_a_write_that_waits_for_the_hand_over_is_refused(
    database: Database, rival: Database, zombie: Claim, write: Write
) -> None:
    """The zombie's statement is sent while the hand-over is open; when it gets the lock it must look again."""
    async with transaction(database) as connection:
        await hand_over(connection, zombie)
        async with started_and_blocked(rival, rival.write(write, zombie)) as task:
            await connection.commit()
            handed_over = await contents(database)
    assert isinstance(task.exception(), GenerationLost)
    assert await contents(database) == handed_over


@every_write
async def test_a_write_that_waits_for_a_hand_over_that_fails_is_done(
    database: Database, rival: Database, zombie: Claim, write: Write
) -> None:
    before = await contents(database)
    async with transaction(database) as connection:
        await hand_over(connection, zombie)
        async with started_and_blocked(rival, rival.write(write, zombie)) as task:
            await connection.rollback()
    assert task.exception() is None
    assert await contents(database) != before


@on_postgres
@every_write
async def test_a_transaction_begun_before_the_hand_over_is_refused_after_it(
    database: Database, rival: Database, zombie: Claim, write: Write
) -> None:
    """The zombie falls asleep inside its transaction, before it has locked the run."""
    async with transaction(database) as asleep:
        assert (await asleep.execute(sa.select(agent_runs.c.generation))).scalar_one() == zombie.run.generation
        await rival.write(hand_over, zombie)
        handed_over = await contents(rival)
        with pytest.raises(GenerationLost):
            await write(asleep, zombie)
        await asleep.rollback()
    assert await contents(database) == handed_over


@on_sqlite
@every_write
async def test_a_transaction_begun_before_the_hand_over_comes_before_it(
    database: Database, rival: Database, zombie: Claim, write: Write
) -> None:
    """On SQLite a transaction that has begun holds the lock: the hand-over waits, then takes the run as it is left."""
    hand_over = rival.write(give_back, zombie.run.id, zombie.run.generation)
    async with transaction(database) as first, started_and_blocked(rival, hand_over) as task:
        await write(first, zombie)
        await first.commit()
    status = (await run_row(database, zombie.run.id)).status
    if write in (end, quiet_end):
        assert (task.result(), status) == (None, RunStatus.COMPLETED)
    else:
        assert (task.result() is not None, status) == (True, RunStatus.QUEUED)
    await refused(database, zombie, finish)


async def test_a_hand_over_waits_for_a_write_that_holds_the_run(
    database: Database, rival: Database, zombie: Claim
) -> None:
    async with transaction(database) as connection:
        await lock_claimed(connection, zombie.run.id, zombie.run.generation)
        async with started_and_blocked(rival, rival.write(hand_over, zombie)) as task:
            await finish(connection, zombie)
            await connection.commit()
    assert task.exception() is None
    states = [call.state for call in await database.read(load_calls, zombie.run.id, 2)]
    assert states == [CallState.FINISHED, CallState.PLANNED]


async def test_what_was_written_before_the_fence_is_undone_too(database: Database, zombie: Claim) -> None:
    """A refusal takes the whole transaction with it, not only the statement that met it."""
    before = await contents(database)

    async def finish_then_lose(connection: Any) -> None:
        await finish(connection, zombie)
        await finish(connection, replace(zombie, run=replace(zombie.run, generation=7)))

    with pytest.raises(GenerationLost):
        await database.write(finish_then_lose)
    assert await contents(database) == before


@on_postgres
@pytest.mark.parametrize("write", AT_ONCE, ids=lambda write: write.__name__)
async def test_what_commits_itself_is_one_statement(database: Database, zombie: Claim, write: Write) -> None:
    statements: list[str] = []

    def note(*arguments: Any) -> None:
        statements.append(arguments[2])

    sa.event.listen(database._engine.sync_engine, "before_cursor_execute", note)
    await database.write_at_once(write, zombie)
    sa.event.remove(database._engine.sync_engine, "before_cursor_execute", note)
    assert len(statements) == 1


async def refused(database: Database, claim: Claim, *writes: Write) -> None:
    before = await contents(database)
    for write in writes:
        with pytest.raises(GenerationLost):
            await database.write(write, claim)
        assert await contents(database) == before, write.__name__
