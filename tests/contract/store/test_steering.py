"""Input for a run that is busy: it steers, is refused, or takes the place of what runs; and may be taken back."""

from typing import Any

import pytest
from tests.contract.store.holder import Holder
from tests.contract.store.races import started_and_blocked
from tests.contract.store.states import (
    AT,
    OWNER,
    accepted,
    claimed,
    contents,
    new_turn,
    registered,
    run_and_invocation,
    run_row,
)
from tests.databases import transaction

from runyard.db import reads, turns
from runyard.db.claims import give_back
from runyard.db.engine import Database
from runyard.db.inputs import STEERING_MAX, STEERING_MAX_CHARS, retract_input
from runyard.db.records import Input, Run
from runyard.db.scope import Scope
from runyard.errors import AgentMismatch, AlreadyFolded, InputQueueFull, RunBusy, RunNotFound
from runyard.ids import WorkerId
from runyard.lifecycle.accept import accept_turn
from runyard.lifecycle.cancelling import cancel_run
from runyard.lifecycle.new_turn import Accepted
from runyard.runs import RunStatus

pytestmark = pytest.mark.anyio

EVE = Scope.of_user("acme", "eve")


@pytest.fixture
def worker(database_url: str) -> WorkerId:
    return registered(database_url)


@pytest.fixture
async def run(database: Database) -> Run:
    """Queued."""
    return await accepted(database, content="go", session_id="s1")


@pytest.fixture
async def holder(database: Database, run: Run, worker: WorkerId) -> Holder:
    """The run, running."""
    return await Holder.of(database, await claimed(database, worker))


async def send(database: Database, content: Any = "wait", **changes: Any) -> Accepted:
    return await database.write(
        accept_turn, new_turn(**{"session_id": "s1", "content": content, "at": AT + 9, **changes})
    )


async def waiting(database: Database, run: Run) -> list[Input]:
    found = await database.read(reads.run_of, run.id, OWNER)
    assert found is not None
    return found[2]


async def texts(database: Database, run: Run) -> list[Any]:
    return [row.content for row in await database.read(turns.load_messages, run.id)]


# Steering ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("by", ["continues", "session_id"])
async def test_input_for_a_running_run_joins_its_invocation(database: Database, holder: Holder, by: str) -> None:
    run, invocation = holder.claim.run, holder.claim.invocation
    named = {"session_id": None, "continues": run.id} if by == "continues" else {}
    first = await send(database, **named)
    assert (first.run_id, first.invocation_id, first.stream_id) == (run.id, invocation.id, invocation.stream_id)
    assert (first.status, first.session_id, first.queued, first.is_steering) == (RunStatus.RUNNING, "s1", 1, True)
    assert (await send(database, "and", **named)).queued == 2
    assert [item.content for item in await waiting(database, run)] == ["wait", "and"]
    after = await run_row(database, run.id)
    assert (after.last_activity_at, after.generation, after.cancel_requested) == (AT + 9, run.generation, False)


async def test_input_for_a_queued_run_is_read_with_what_opened_it(
    database: Database, run: Run, worker: WorkerId
) -> None:
    steering = await send(database)
    assert (steering.status, steering.queued, steering.invocation_id) == (RunStatus.QUEUED, 1, run.invocation_id)
    claim = await claimed(database, worker)
    assert [(item.content, item.opens) for item in claim.folded] == [("go", True), ("wait", False)]
    assert await texts(database, run) == ["go\n\nwait"]


async def test_steering_may_name_what_the_run_is_called(database: Database, holder: Holder) -> None:
    await send(database, title="Swifts", metadata={"ticket": 7})
    run = await run_row(database, holder.claim.run.id)
    assert (run.title, run.metadata) == ("Swifts", {"ticket": 7})
    await send(database)
    assert await run_row(database, run.id) == run


async def test_strangers_and_other_agents_do_not_steer(database: Database, holder: Holder) -> None:
    before = await contents(database)
    for stranger in ({"user_id": "eve"}, {"tenant_id": "other"}):
        with pytest.raises(RunNotFound):
            await send(database, session_id=None, continues=holder.claim.run.id, **stranger)
    with pytest.raises(AgentMismatch):
        await send(database, session_id=None, continues=holder.claim.run.id, agent="poet")
    assert await contents(database) == before


async def test_so_many_inputs_may_wait(database: Database, run: Run) -> None:
    """What opens the call is none of them."""
    for number in range(STEERING_MAX):
        assert (await send(database, f"{number}")).queued == number + 1
    before = await contents(database)
    with pytest.raises(InputQueueFull) as caught:
        await send(database, "x")
    assert caught.value.fields == {"waiting": STEERING_MAX}
    assert await contents(database) == before


async def test_so_much_text_may_wait(database: Database, worker: WorkerId) -> None:
    run = await accepted(database, content="x" * STEERING_MAX_CHARS, session_id="s1")
    await send(database, "ü" * (STEERING_MAX_CHARS - 3))
    await send(database, [{"type": "text", "text": "ab"}, {"type": "image", "source": {"data": "x" * 9000}}])
    with pytest.raises(InputQueueFull):
        await send(database, "cd")
    await send(database, "c")
    await claimed(database, worker)
    assert await waiting(database, run) == []
    assert (await send(database, "room again")).queued == 1


async def test_steering_that_is_sent_again_is_stored_once(database: Database, holder: Holder, worker: WorkerId) -> None:
    """After a commit of unknown outcome; by then the run may have gone on."""
    turn = new_turn(session_id="s1", content="wait")
    first = await database.write(accept_turn, turn)
    assert await database.write(accept_turn, turn) == first
    assert len(await waiting(database, holder.claim.run)) == 1
    await holder.says("Done.")
    await holder.says("Really.")
    await send(database, "next")
    before = await contents(database)
    again = await database.write(accept_turn, turn)
    assert (again.invocation_id, again.stream_id, again.is_steering) == (first.invocation_id, first.stream_id, True)
    assert again.status is RunStatus.COMPLETED
    assert await contents(database) == before


# A run that ends meanwhile -----------------------------------------------------------------------------------------


async def test_input_that_comes_before_the_end_is_in_the_turn(
    database: Database, rival: Database, holder: Holder
) -> None:
    holder.database = rival
    async with transaction(database) as first:
        steering = await accept_turn(first, new_turn(session_id="s1", content="wait"))
        async with started_and_blocked(rival, holder.says("Done.")) as ending:
            await first.commit()
    assert steering.is_steering
    assert ending.result().settlement is None
    assert (await texts(database, holder.claim.run))[-1] == "wait"


@pytest.mark.parametrize("end", ["says", "fails"])
async def test_input_that_comes_after_the_end_begins_a_turn(
    database: Database, rival: Database, holder: Holder, end: str
) -> None:
    turn = new_turn(session_id="s1", content="wait")
    async with transaction(database) as first:
        holder.connection = first
        await (holder.says("Done.") if end == "says" else holder.fails())
        async with started_and_blocked(rival, rival.write(accept_turn, turn)) as sending:
            await first.commit()
    sent = sending.result()
    assert (sent.is_steering, sent.invocation_id, sent.status) == (False, turn.invocation_id, RunStatus.QUEUED)
    run, _ = await run_and_invocation(rival, holder.claim.run.id)
    assert (run.status, run.invocation_id) == (RunStatus.QUEUED, turn.invocation_id)


# ifBusy: cancel ----------------------------------------------------------------------------------------------------


async def test_a_running_call_is_asked_to_make_room(database: Database, holder: Holder) -> None:
    before, old = holder.claim.run, holder.claim.invocation
    await send(database, "for the first")
    sent = await send(database, "instead", if_busy="cancel", title="Terns", metadata={"a": 1}, queue="bulk", at=AT + 20)
    assert (sent.is_steering, sent.waits_for_end, sent.status, sent.ending) == (False, True, RunStatus.QUEUED, None)
    run, invocation = await run_and_invocation(database, before.id)
    assert (run.status, run.cancel_requested, run.invocation_id) == (RunStatus.RUNNING, True, old.id)
    assert (run.title, run.metadata, run.queue, run.worker_id) == ("Terns", {"a": 1}, "bulk", before.worker_id)
    assert invocation == old
    assert [(item.content, item.opens) for item in await waiting(database, run)] == [
        ("for the first", False),
        ("instead", True),
    ]


async def test_one_call_at_a_time_takes_the_place_of_another(
    database: Database, holder: Holder, worker: WorkerId
) -> None:
    following = await send(database, "instead", if_busy="cancel")
    run_id = holder.claim.run.id

    async def refused(status: RunStatus) -> None:
        before = await contents(database)
        for if_busy in ("cancel", "reject"):
            with pytest.raises(RunBusy) as caught:
                await send(database, "no, me", if_busy=if_busy)
            assert caught.value.fields == {"runId": run_id, "status": status}
        assert await contents(database) == before

    await refused(RunStatus.RUNNING)
    await database.write(give_back, run_id, holder.claim.run.generation)
    await refused(RunStatus.QUEUED)
    taker = await Holder.of(database, await claimed(database, worker))
    assert taker.claim.run.cancel_requested
    assert (await taker.stops()).replacement is not None
    sent = await send(database, "now me", if_busy="cancel")
    assert sent.ending is not None
    assert sent.ending.invocation_id == following.invocation_id
    assert await texts(database, holder.claim.run) == ["go", "instead"]


async def test_a_queued_call_is_replaced_at_once(database: Database, run: Run, worker: WorkerId) -> None:
    await send(database, "and")
    sent = await send(database, "instead", if_busy="cancel", at=AT + 20)
    assert (sent.is_steering, sent.waits_for_end) == (False, False)
    assert sent.ending is not None
    assert sent.ending.invocation_id == run.invocation_id
    assert sent.ending.result["cancelled"] is True
    after = await run_row(database, run.id)
    assert (after.status, after.invocation_id, after.rank) == (RunStatus.QUEUED, sent.invocation_id, AT + 20)
    assert not after.cancel_requested
    old = await database.read(reads.invocation_of, run.invocation_id, OWNER)
    assert old is not None
    assert (old[0].status, old[0].started_at, old[0].settled_at) == (RunStatus.CANCELLED, None, AT + 20)
    await claimed(database, worker)
    assert await texts(database, run) == ["go\n\nand", "instead"], "what was accepted is kept"


async def test_a_replacement_that_is_sent_again_is_one(database: Database, holder: Holder) -> None:
    turn = new_turn(session_id="s1", content="instead", if_busy="cancel")
    first = await database.write(accept_turn, turn)
    before = await contents(database)
    assert await database.write(accept_turn, turn) == first
    await holder.stops()
    settled = await contents(database)
    again = await database.write(accept_turn, turn)
    assert (again.invocation_id, again.waits_for_end) == (turn.invocation_id, False)
    assert await contents(database) == settled != before


async def test_of_two_replacements_at_once_one_is_refused(database: Database, rival: Database, holder: Holder) -> None:
    async with transaction(database) as first:
        await accept_turn(first, new_turn(session_id="s1", if_busy="cancel"))
        sending = rival.write(accept_turn, new_turn(session_id="s1", if_busy="cancel"))
        async with started_and_blocked(rival, sending) as second:
            await first.commit()
    assert isinstance(second.exception(), RunBusy)


# A run that is being stopped ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [RunStatus.RUNNING, RunStatus.QUEUED])
async def test_input_for_a_run_that_is_being_stopped_is_for_the_next_turn(
    database: Database, holder: Holder, worker: WorkerId, status: RunStatus
) -> None:
    run = holder.claim.run
    await send(database, "too late for me")
    await database.write(cancel_run, run.id, OWNER, at=AT + 10)
    if status is RunStatus.QUEUED:
        await database.write(give_back, run.id, run.generation)
    next_turn = await send(database, "after that")
    assert (next_turn.is_steering, next_turn.waits_for_end) == (False, True)
    joined = await send(database, "and this")
    assert (joined.is_steering, joined.invocation_id, joined.status) == (
        True,
        next_turn.invocation_id,
        RunStatus.QUEUED,
    )
    if status is RunStatus.QUEUED:
        holder = await Holder.of(database, await claimed(database, worker))
    await holder.stops()
    claim = await claimed(database, worker)
    assert claim.invocation.id == next_turn.invocation_id
    assert await texts(database, run) == ["go", "too late for me", "after that\n\nand this"]


# Taking back -------------------------------------------------------------------------------------------------------


async def test_steering_is_taken_back_until_it_is_folded(database: Database, holder: Holder) -> None:
    run = holder.claim.run
    await send(database, "wait")
    await send(database, "no")
    first, second = await waiting(database, run)
    assert await database.write(retract_input, run.id, OWNER, second.id) == second
    assert await database.write(retract_input, run.id, OWNER, second.id) is None
    await holder.says("Done.")
    with pytest.raises(AlreadyFolded) as caught:
        await database.write(retract_input, run.id, OWNER, first.id)
    assert caught.value.fields == {"inputId": first.id, "seq": 3}
    assert (await texts(database, run))[-1] == "wait"


async def test_what_opens_a_call_is_not_taken_back(database: Database, run: Run, worker: WorkerId) -> None:
    (opening,) = await waiting(database, run)
    before = await contents(database)
    with pytest.raises(AlreadyFolded) as caught:
        await database.write(retract_input, run.id, OWNER, opening.id)
    assert caught.value.fields == {"inputId": opening.id, "seq": None}
    assert await contents(database) == before


async def test_what_a_failed_turn_left_is_taken_back(database: Database, holder: Holder, worker: WorkerId) -> None:
    run = holder.claim.run
    await send(database, "wait")
    await holder.fails()
    (left,) = await waiting(database, run)
    assert await database.write(retract_input, run.id, OWNER, left.id) == left
    await send(database, "again")
    await claimed(database, worker)
    assert await texts(database, run) == ["go", "again"]


async def test_strangers_take_nothing_back(database: Database, holder: Holder) -> None:
    await send(database)
    run = holder.claim.run
    (item,) = await waiting(database, run)
    other = await accepted(database)
    before = await contents(database)
    assert await database.write(retract_input, run.id, EVE, item.id) is None
    assert await database.write(retract_input, "run_none", OWNER, item.id) is None
    assert await database.write(retract_input, other.id, OWNER, item.id) is None, "right parent, wrong child"
    assert await contents(database) == before


async def test_of_fold_and_retraction_the_first_one_wins(database: Database, rival: Database, holder: Holder) -> None:
    await send(database)
    run = holder.claim.run
    (item,) = await waiting(database, run)
    holder.database = rival
    async with transaction(database) as first:
        await retract_input(first, run.id, OWNER, item.id)
        async with started_and_blocked(rival, holder.says("Done.")) as ending:
            await first.commit()
    assert ending.result().settlement is not None
    assert await texts(database, run) == ["go", [{"type": "text", "text": "Done."}]]
