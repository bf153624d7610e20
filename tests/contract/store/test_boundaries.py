"""The boundaries of a turn: what was sent meanwhile goes into the transcript, in its place, exactly once."""

from typing import Any

import pytest
import sqlalchemy as sa
from tests.contract.store.holder import Holder
from tests.contract.store.states import (
    AT,
    OWNER,
    TOTALS,
    accepted,
    claimed,
    new_turn,
    registered,
    run_and_invocation,
)
from tests.fakes.rows import text, tool_use
from tests.standin import validate_transcript

from runyard.blocks import INTERRUPTED
from runyard.db import reads, turns
from runyard.db.claims import give_back
from runyard.db.engine import Database
from runyard.db.records import Message
from runyard.db.tables import agent_inputs
from runyard.ids import WorkerId
from runyard.lifecycle import settling
from runyard.lifecycle.accept import accept_turn
from runyard.lifecycle.cancelling import cancel_run
from runyard.lifecycle.new_turn import Accepted
from runyard.runs import CallState, RunStatus
from runyard.transcript import request_messages

pytestmark = pytest.mark.anyio

IMAGE = {"type": "image", "source": {"type": "url", "url": "https://images.example/swift.png"}}


def result(call_id: str) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": call_id, "content": f"of {call_id}"}


@pytest.fixture
def worker(database_url: str) -> WorkerId:
    return registered(database_url)


@pytest.fixture
async def holder(database: Database, worker: WorkerId) -> Holder:
    await accepted(database, content="go")
    return await Holder.of(database, await claimed(database, worker))


async def send(database: Database, holder: Holder, content: Any, **changes: Any) -> Accepted:
    turn = new_turn(continues=holder.claim.run.id, content=content, at=AT + 50, **changes)
    return await database.write(accept_turn, turn)


async def cancel(database: Database, holder: Holder) -> None:
    await database.write(cancel_run, holder.claim.run.id, OWNER, at=AT + 60)


async def rows_of(database: Database, holder: Holder) -> list[Message]:
    rows = await database.read(turns.load_messages, holder.claim.run.id)
    assert [row.seq for row in rows] == list(range(1, len(rows) + 1))
    validate_transcript(request_messages(rows))
    return rows


async def folds(database: Database) -> dict[str, int | None]:
    """Where each input is: content that is a text, and the row."""

    async def load(connection: Any) -> dict[str, int | None]:
        rows = await connection.execute(sa.select(agent_inputs.c.content, agent_inputs.c.folded_in_seq))
        return {str(row.content): row.folded_in_seq for row in rows}

    return await database.read(load)


async def test_at_a_tool_boundary_results_come_first(database: Database, holder: Holder) -> None:
    await holder.asks("a", "b")
    await holder.starts("a", "b")
    await send(database, holder, "wait")
    await send(database, holder, [IMAGE, text("this one")])
    await send(database, holder, "and that")
    boundary = await holder.answers()
    assert (boundary.settlement, boundary.cancel_requested) == (None, False)
    assert [item.content for item in boundary.steered] == ["wait", [IMAGE, text("this one")], "and that"]
    rows = await rows_of(database, holder)
    assert rows[2].content == [result("a"), result("b"), text("wait"), IMAGE, text("this one"), text("and that")]
    assert [boundary.appended] == [(rows[2],)]
    assert await folds(database) == {"go": 1, "wait": 3, str([IMAGE, text("this one")]): 3, "and that": 3}


async def test_at_a_terminal_boundary_the_invocation_goes_on(database: Database, holder: Holder) -> None:
    await send(database, holder, "wait")
    await send(database, holder, "and that")
    boundary = await holder.says("Done.")
    assert (boundary.settlement, boundary.replacement) == (None, None)
    rows = await rows_of(database, holder)
    assert [row.content for row in rows] == ["go", [text("Done.")], "wait\n\nand that"]
    assert {row.invocation_id for row in rows} == {holder.claim.invocation.id}
    run, invocation = await run_and_invocation(database, holder.claim.run.id)
    assert (run.status, run.last_seq, run.steps, run.worker_id) == (
        RunStatus.RUNNING,
        3,
        TOTALS.run_steps,
        holder.claim.run.worker_id,
    )
    assert (invocation.status, invocation.steps, invocation.settled_at) == (RunStatus.RUNNING, TOTALS.steps, None)
    assert (await holder.says("Really.")).settlement is not None
    assert (await run_and_invocation(database, run.id))[0].status is RunStatus.COMPLETED


async def test_steering_stands_behind_the_answers_to_a_cut_turn(database: Database, holder: Holder) -> None:
    """G9: a turn that its limit cut asks for a call that does not run, and input waits."""
    await send(database, holder, "wait")
    blocks = [text("I'll"), tool_use("a")]
    cut = {"type": "tool_result", "tool_use_id": "a", "content": "cut", "is_error": True}
    turn = holder._turn(*blocks, stop_reason="max_tokens")
    boundary = await holder._end(turn, [cut])
    assert boundary.settlement is None
    assert [row.content for row in await rows_of(database, holder)] == ["go", blocks, [cut, text("wait")]]


async def test_a_cancel_at_a_terminal_boundary_keeps_answer_and_steering(database: Database, holder: Holder) -> None:
    """The order of cancel and steering does not matter."""
    await send(database, holder, "one more thing")
    await cancel(database, holder)
    boundary = await holder.says("Done.")
    assert boundary.cancel_requested
    assert boundary.settlement is not None
    assert boundary.settlement.result["text"] == "Done."
    rows = await rows_of(database, holder)
    assert [row.content for row in rows] == ["go", [text("Done.")], "one more thing"]
    run, invocation = await run_and_invocation(database, holder.claim.run.id)
    assert (run.status, run.cancel_requested, run.worker_id) == (RunStatus.CANCELLED, False, None)
    assert (invocation.status, invocation.last_seq) == (RunStatus.CANCELLED, 3)


async def test_a_cancel_at_a_tool_boundary_is_told_and_keeps_the_results(database: Database, holder: Holder) -> None:
    await holder.asks("a")
    await cancel(database, holder)
    assert (await holder.answers()).cancel_requested
    assert (await holder.stops()).settlement is not None
    assert [row.role for row in await rows_of(database, holder)] == ["user", "assistant", "user"]


async def test_a_failure_leaves_steering_unanswered_and_the_next_turn_begins_with_it(
    database: Database, holder: Holder, worker: WorkerId
) -> None:
    await holder.asks("a")
    await send(database, holder, "wait")
    boundary = await holder.fails()
    assert boundary.settlement is not None
    assert [item["text"] for item in boundary.settlement.result["unanswered"]] == ["wait"]
    assert await folds(database) == {"go": 1, "wait": None}
    found = await database.read(reads.run_of, holder.claim.run.id, OWNER)
    assert found is not None
    assert (found[0].status, [item.content for item in found[2]]) == (RunStatus.FAILED, ["wait"])

    accepted_next = await send(database, holder, "try again")
    assert not accepted_next.is_steering
    await claimed(database, worker)
    assert (await rows_of(database, holder))[-1].content == "wait\n\ntry again"
    assert await folds(database) == {"go": 1, "wait": 4, "try again": 4}


async def test_a_failure_finishes_in_the_ledger_what_it_answers(database: Database, holder: Holder) -> None:
    await holder.asks("a", "b", "c")
    await holder.starts("a", "b")
    await holder.finishes("a")
    await holder.fails()
    ledger = await database.read(turns.load_calls, holder.claim.run.id, 2)
    assert [(call.state, call.content, call.is_error) for call in ledger] == [
        (CallState.FINISHED, "of a", False),
        (CallState.FINISHED, INTERRUPTED, True),
        (CallState.FINISHED, settling.NOT_STARTED, True),
    ]


async def test_a_failure_that_meets_a_cancel_is_one(database: Database, holder: Holder) -> None:
    await holder.asks("a")
    await send(database, holder, "wait")
    await cancel(database, holder)
    boundary = await holder.fails()
    assert boundary.settlement is not None
    assert "unanswered" not in boundary.settlement.result
    assert (await rows_of(database, holder))[-1].content[-1] == text("wait")
    assert (await run_and_invocation(database, holder.claim.run.id))[0].status is RunStatus.CANCELLED


@pytest.mark.parametrize("end", ["says", "fails", "stops"])
async def test_the_end_of_a_replaced_turn_queues_the_next_one(
    database: Database, holder: Holder, worker: WorkerId, end: str
) -> None:
    await send(database, holder, "for this turn")
    following = await send(database, holder, "instead", if_busy="cancel")
    await send(database, holder, "and also")
    boundary = await (holder.says("So far") if end == "says" else getattr(holder, end)())
    assert boundary.replacement is not None
    assert boundary.replacement.invocation_id == following.invocation_id
    assert (await rows_of(database, holder))[-1].content == "for this turn"
    run, invocation = await run_and_invocation(database, holder.claim.run.id)
    assert (run.status, run.error, run.worker_id, run.rank) == (RunStatus.QUEUED, None, None, AT + 50)
    assert (run.cancel_requested, invocation.id) == (False, following.invocation_id)
    found = await database.read(reads.invocation_of, holder.claim.invocation.id, OWNER)
    assert found is not None
    assert found[0].status is RunStatus.CANCELLED

    again = await claimed(database, worker)
    assert (again.invocation.id, again.run.cancel_requested) == (following.invocation_id, False)
    assert (await rows_of(database, holder))[-1].content == "instead\n\nand also"


async def test_steering_waits_for_its_boundary_when_a_batch_is_taken_over(
    database: Database, holder: Holder, worker: WorkerId
) -> None:
    """The row behind a turn with calls is the one with their results, whoever has the run by then."""
    await holder.asks("a", "b")
    await holder.starts("a", "b")
    await holder.finishes("a")
    await send(database, holder, "wait")
    await database.write(give_back, holder.claim.run.id, holder.claim.run.generation)
    again = await claimed(database, worker)
    assert (again.folded, again.appended, again.is_takeover) == ((), None, True)
    assert await folds(database) == {"go": 1, "wait": None}
    ledger = await database.read(turns.load_calls, again.run.id, 2)
    assert [call.state for call in ledger] == [CallState.FINISHED, CallState.STARTED]

    taker = await Holder.of(database, again)
    taker.calls = ["a", "b"]
    await taker.answers()
    assert (await rows_of(database, holder))[-1].content == [result("a"), result("b"), text("wait")]


async def test_a_run_given_up_at_a_boundary_says_how_far_its_frames_went(
    database: Database, holder: Holder, worker: WorkerId
) -> None:
    run_id = holder.claim.run.id
    await database.write(give_back, run_id, holder.claim.run.generation, sent=42)
    again = await claimed(database, worker)
    assert (again.invocation.last_frame, again.invocation.settled_at) == (42, None)
    await database.write(give_back, run_id, again.run.generation)
    assert (await claimed(database, worker)).invocation.last_frame == 42, "a death tells nothing new"
