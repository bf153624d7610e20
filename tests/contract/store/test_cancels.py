"""Cancels: bound to the invocation that they see, whoever runs it; nothing that was accepted goes unnamed."""

from typing import Any

import pytest
from tests.contract.store.holder import Holder
from tests.contract.store.races import started_and_blocked
from tests.contract.store.states import (
    AT,
    OWNER,
    TOTALS,
    accepted,
    claim,
    claimed,
    contents,
    new_turn,
    registered,
    run_and_invocation,
    run_row,
)
from tests.databases import transaction
from tests.fakes.rows import text
from tests.standin import validate_transcript

from runyard.blocks import CANCELLED, INTERRUPTED
from runyard.db import turns
from runyard.db.claims import give_back, is_cancel_requested
from runyard.db.deaths import bury
from runyard.db.engine import Database
from runyard.db.records import Run
from runyard.db.scope import Scope
from runyard.errors import RunNotFound
from runyard.ids import WorkerId
from runyard.lifecycle.accept import accept_turn
from runyard.lifecycle.cancelling import Cancelled, cancel_run
from runyard.lifecycle.new_turn import Accepted
from runyard.runs import CallState, RunStatus
from runyard.transcript import request_messages

pytestmark = pytest.mark.anyio


@pytest.fixture
def worker(database_url: str) -> WorkerId:
    return registered(database_url)


@pytest.fixture
async def run(database: Database) -> Run:
    """Queued."""
    return await accepted(database, content="go")


@pytest.fixture
async def holder(database: Database, run: Run, worker: WorkerId) -> Holder:
    """The run, running."""
    return await Holder.of(database, await claimed(database, worker))


async def send(database: Database, run: Run, content: Any, **changes: Any) -> Accepted:
    return await database.write(accept_turn, new_turn(continues=run.id, content=content, at=AT + 5, **changes))


async def cancel(database: Database, run: Run, *, named: str | None = None) -> Cancelled:
    return await database.write(cancel_run, run.id, OWNER, invocation_id=named, at=AT + 10)


async def texts(database: Database, run: Run) -> list[Any]:
    rows = await database.read(turns.load_messages, run.id)
    validate_transcript(request_messages(rows))
    return [row.content for row in rows]


async def test_a_queued_run_settles_at_once(database: Database, run: Run, worker: WorkerId) -> None:
    await send(database, run, "wait")
    done = await cancel(database, run)
    assert (done.status, [item.content for item in done.dropped]) == (RunStatus.CANCELLED, ["wait"])
    assert done.ending is not None
    assert (done.ending.invocation_id, done.ending.last_frame, done.ending.text) == (run.invocation_id, 0, "")
    after, invocation = await run_and_invocation(database, run.id)
    assert (after.status, after.last_seq, after.last_activity_at) == (RunStatus.CANCELLED, 1, AT + 10)
    assert (invocation.status, invocation.result, invocation.settled_at) == (
        RunStatus.CANCELLED,
        done.ending.result,
        AT + 10,
    )
    assert (invocation.result["cancelled"], invocation.result["text"], invocation.result["steps"]) == (True, "", 0)
    assert await claim(database, worker) is None, "what was queued never starts"
    assert await texts(database, run) == ["go"]

    await send(database, run, "again")
    assert (await claimed(database, worker)).run.cancel_requested is False
    assert await texts(database, run) == ["go", "again"]


async def test_a_running_run_is_asked(database: Database, holder: Holder) -> None:
    run, before = holder.claim.run, await contents(database)
    for _ in range(2):
        done = await cancel(database, run)
        assert (done.status, done.dropped, done.ending) == (RunStatus.RUNNING, (), None)
    assert (await run_row(database, run.id)).cancel_requested
    after = await contents(database)
    assert {table for table, rows in after.items() if rows != before[table]} == {"agent_runs"}


@pytest.mark.parametrize("end", ["says", "fails", "stops"])
async def test_a_settled_run_keeps_its_status(database: Database, holder: Holder, end: str) -> None:
    """What is over stays what it was."""
    run = holder.claim.run
    if end == "stops":
        await cancel(database, run)
    await (holder.says("Done.") if end == "says" else getattr(holder, end)())
    before = await contents(database)
    done = await cancel(database, run)
    assert (done.status, done.dropped, done.ending) == ((await run_row(database, run.id)).status, (), None)
    assert await contents(database) == before


async def test_what_a_failed_turn_left_is_dropped_and_named(
    database: Database, holder: Holder, worker: WorkerId
) -> None:
    run = holder.claim.run
    await send(database, run, "wait")
    await holder.fails()
    done = await cancel(database, run)
    assert (done.status, [item.content for item in done.dropped]) == (RunStatus.FAILED, ["wait"])
    await send(database, run, "again")
    await claimed(database, worker)
    assert await texts(database, run) == ["go", "again"]


@pytest.mark.parametrize("owner", [Scope.of_user("acme", "eve"), Scope.of_user("other", "ada")])
async def test_strangers_cancel_nothing(database: Database, run: Run, owner: Scope) -> None:
    before = await contents(database)
    for run_id in (run.id, "run_none"):
        with pytest.raises(RunNotFound) as caught:
            await database.write(cancel_run, run_id, owner, at=AT)
        assert caught.value.fields == {"runId": run_id}
    assert await contents(database) == before


# A run that its worker has lost ------------------------------------------------------------------------------------


async def test_a_run_whose_worker_is_dead_settles_as_its_ledger_says(
    database: Database, holder: Holder, worker: WorkerId
) -> None:
    """A result for each call; the next turn is possible."""
    run = holder.claim.run
    await holder.asks("a", "b", "c")
    await holder.starts("a", "b")
    await holder.finishes("a")
    await send(database, run, "never read")
    await database.write(buried, worker)
    done = await cancel(database, run)
    assert (done.status, len(done.dropped)) == (RunStatus.CANCELLED, 1)
    assert done.ending is not None
    assert (done.ending.text, done.ending.last_frame) == ("Let me check.", 6)
    assert [(row.seq, row.role) for row in done.ending.appended] == [(3, "user")]
    after, invocation = await run_and_invocation(database, run.id)
    assert (after.status, after.worker_id, after.steps) == (RunStatus.CANCELLED, None, TOTALS.run_steps)
    assert (invocation.steps, invocation.result["steps"], invocation.deaths) == (
        TOTALS.steps,
        TOTALS.steps,
        [["lookup"]],
    )
    results = (await texts(database, run))[-1]
    assert [(block["content"], block.get("is_error", False)) for block in results] == [
        ("of a", False),
        (INTERRUPTED, True),
        (CANCELLED, True),
    ]
    ledger = await database.read(turns.load_calls, run.id, 2)
    assert [(call.state, call.content, call.is_error) for call in ledger] == [
        (CallState.FINISHED, "of a", False),
        (CallState.FINISHED, INTERRUPTED, True),
        (CallState.FINISHED, CANCELLED, True),
    ]
    await send(database, run, "again")
    assert (await texts(database, run))[-1] == results


async def test_a_run_that_was_given_up_at_a_boundary_is_taken_back_to_there(database: Database, holder: Holder) -> None:
    await database.write(give_back, holder.claim.run.id, holder.claim.run.generation, sent=42)
    done = await cancel(database, holder.claim.run)
    assert done.ending is not None
    assert done.ending.last_frame == 42


async def test_a_cancel_that_came_before_the_death_is_there_for_the_taker(
    database: Database, holder: Holder, worker: WorkerId, database_url: str
) -> None:
    run = holder.claim.run
    await cancel(database, run)
    await database.write(buried, worker)
    taken = await claimed(database, registered(database_url))
    assert (taken.run.cancel_requested, taken.is_takeover) == (True, True)
    await (await Holder.of(database, taken)).stops()
    after = await run_row(database, run.id)
    assert (after.status, after.cancel_requested) == (RunStatus.CANCELLED, False)


async def test_a_cancel_meets_the_death_of_the_worker(
    database: Database, rival: Database, holder: Holder, worker: WorkerId
) -> None:
    """Just as the watcher takes the run."""
    run = holder.claim.run
    async with transaction(database) as first:
        await buried(first, worker)
        async with started_and_blocked(rival, rival.write(cancel_run, run.id, OWNER, at=AT)) as cancelling:
            await first.commit()
    assert cancelling.result().status is RunStatus.CANCELLED
    assert await database.write(buried, worker) is None


# Which invocation it is for ----------------------------------------------------------------------------------------


async def test_a_cancel_that_comes_before_the_end_cancels(database: Database, rival: Database, holder: Holder) -> None:
    run = holder.claim.run
    holder.database = rival
    async with transaction(database) as first:
        await cancel_run(first, run.id, OWNER, at=AT)
        async with started_and_blocked(rival, holder.says("Done.")) as ending:
            await first.commit()
    assert ending.result().cancel_requested
    after = await run_row(database, run.id)
    assert (after.status, after.cancel_requested) == (RunStatus.CANCELLED, False)


async def test_a_cancel_that_comes_after_the_end_cancels_nothing(
    database: Database, rival: Database, holder: Holder, worker: WorkerId
) -> None:
    run = holder.claim.run
    async with transaction(database) as first:
        holder.connection = first
        await holder.says("Done.")
        async with started_and_blocked(rival, rival.write(cancel_run, run.id, OWNER, at=AT)) as cancelling:
            await first.commit()
    assert cancelling.result().status is RunStatus.COMPLETED
    await send(database, run, "again")
    assert (await claimed(database, worker)).run.cancel_requested is False


async def test_a_cancel_meets_the_claim(database: Database, rival: Database, run: Run, worker: WorkerId) -> None:
    """Between "picked from the queue" and "started"."""
    async with transaction(database) as first:
        await cancel_run(first, run.id, OWNER, at=AT)
        async with started_and_blocked(rival, claim(rival, worker)) as claiming:
            await first.commit()
    assert claiming.result() is None


async def test_what_was_asked_of_one_invocation_is_not_done_to_the_next(
    database: Database, holder: Holder, worker: WorkerId
) -> None:
    run = holder.claim.run
    await cancel(database, run)
    assert await database.read(is_cancel_requested, run.id, run.generation)
    await holder.says("Done.")
    await send(database, run, "again")
    again = await claimed(database, worker)
    assert not await database.read(is_cancel_requested, run.id, run.generation)
    assert not await database.read(is_cancel_requested, run.id, again.run.generation)
    assert (await (await Holder.of(database, again)).says("Done.")).cancel_requested is False


async def test_a_call_that_waits_to_be_next_is_not_cancelled(
    database: Database, holder: Holder, worker: WorkerId
) -> None:
    """The cancel sees what runs. It runs no more, so it settles, and the next one is queued."""
    run = holder.claim.run
    following = await send(database, run, "instead", if_busy="cancel")
    await send(database, run, "and this")
    await database.write(give_back, run.id, run.generation)
    done = await cancel(database, run)
    assert (done.status, done.dropped) == (RunStatus.QUEUED, ())
    assert done.ending is not None
    assert done.ending.result["status"] == RunStatus.CANCELLED
    claim_of_next = await claimed(database, worker)
    assert claim_of_next.invocation.id == following.invocation_id
    assert await texts(database, run) == ["go", "instead\n\nand this"]


@pytest.mark.parametrize("then", ["queued", "running", "settled"])
async def test_a_cancel_that_is_sent_again_stops_nothing_newer(
    database: Database, holder: Holder, worker: WorkerId, then: str
) -> None:
    """Its answer was lost, and the invocation that it names has ended since; what it ended as is told."""
    run = holder.claim.run
    first = await cancel(database, run, named=run.invocation_id)
    assert (first.status, first.invocation_id) == (RunStatus.RUNNING, run.invocation_id)
    await holder.stops()
    await send(database, run, "again")
    if then != "queued":
        again = await Holder.of(database, await claimed(database, worker))
        await send(database, run, "and this")
        if then == "settled":
            await again.fails()
    before = await contents(database)
    done = await cancel(database, run, named=run.invocation_id)
    assert (done.status, done.invocation_id) == (RunStatus.CANCELLED, run.invocation_id)
    assert (done.dropped, done.ending) == ((), None)
    assert await contents(database) == before


async def test_a_run_has_no_invocation_of_another_one(database: Database, run: Run) -> None:
    other = await accepted(database)
    before = await contents(database)
    for named in (other.newest_invocation, "inv_none"):
        with pytest.raises(RunNotFound) as caught:
            await cancel(database, run, named=named)
        assert caught.value.fields == {"runId": run.id, "invocationId": named}
    assert await contents(database) == before


async def test_a_call_that_waits_to_be_next_can_be_named(database: Database, holder: Holder, worker: WorkerId) -> None:
    """It never begins; what runs is stopped as it was to be, and a further call takes its place."""
    run = holder.claim.run
    following = await send(database, run, "instead", if_busy="cancel")
    await send(database, run, "and this")
    done = await cancel(database, run, named=following.invocation_id)
    assert (done.status, done.invocation_id) == (RunStatus.RUNNING, following.invocation_id)
    assert [item.content for item in done.dropped] == ["instead", "and this"]
    assert done.ending is not None
    assert (done.ending.stream_id, done.ending.text, done.ending.last_frame) == (following.stream_id, "", 0)
    assert done.ending.result["status"] == RunStatus.CANCELLED
    assert (await cancel(database, run, named=following.invocation_id)).status is RunStatus.CANCELLED
    boundary = await holder.stops()
    assert boundary.replacement is None
    assert (await run_row(database, run.id)).status is RunStatus.CANCELLED
    assert await claim(database, worker) is None
    assert await texts(database, run) == ["go"]


async def test_an_answer_that_was_begun_is_in_the_ending(database: Database, holder: Holder) -> None:
    run = holder.claim.run
    await send(database, run, "go on")
    await holder.says("One. ")
    await database.write(give_back, run.id, run.generation)
    done = await cancel(database, run)
    assert done.ending is not None
    assert (done.ending.text, done.ending.result["text"]) == ("One. ", "One. ")
    assert await texts(database, run) == ["go", [text("One. ")], "go on"]


async def buried(connection: Any, worker_id: WorkerId) -> Any:
    return await connection.run_sync(bury, worker_id, 0)
