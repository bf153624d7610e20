"""A worker's transactions: what each of them stores."""

from typing import Any

import pytest
import sqlalchemy as sa
from tests.contract.store.states import (
    AT,
    CALLS,
    OWNER,
    TOTALS,
    accepted,
    assistant_turn,
    claimed,
    completed,
    finished,
    held,
    new_turn,
    registered,
    settle,
)

from runyard.db import reads
from runyard.db.boundaries import append_results
from runyard.db.claims import Claim
from runyard.db.engine import Database
from runyard.db.records import Call, Invocation, Run
from runyard.db.turns import (
    PlannedCall,
    append_turn,
    finish_call,
    load_calls,
    load_messages,
    set_frame_base,
    start_calls,
)
from runyard.lifecycle.accept import accept_turn
from runyard.runs import CallState, RunEvent, RunStatus

pytestmark = pytest.mark.anyio

RESULTS = [
    {"type": "tool_result", "tool_use_id": "toolu_1", "content": "three pages"},
    {"type": "tool_result", "tool_use_id": "toolu_2", "content": "refused", "is_error": True},
]


@pytest.fixture
async def claim(database: Database, database_url: str) -> Claim:
    await accepted(database)
    return await claimed(database, registered(database_url))


async def test_a_models_turn_is_stored_with_its_planned_calls(database: Database, claim: Claim) -> None:
    turn = assistant_turn(stop_reason="tool_use")
    await database.write(append_turn, held(claim), turn, CALLS, TOTALS, at=AT + 5)
    stored = (await database.read(load_messages, claim.run.id))[-1]
    assert (stored.seq, stored.role, stored.invocation_id, stored.created_at) == (
        2,
        "assistant",
        claim.invocation.id,
        AT + 5,
    )
    for name in ("content", "model", "usage", "cost", "stop_reason", "duration_ms", "first_frame", "last_frame"):
        assert getattr(stored, name) == getattr(turn, name), name
    calls = await ledger(database, claim)
    assert [(call.index, call.call_id, call.name, call.idempotent, call.state) for call in calls] == [
        (0, "toolu_1", "search_docs", True, CallState.PLANNED),
        (1, "toolu_2", "send_mail", False, CallState.PLANNED),
    ]
    run, invocation = await state(database, claim)
    assert (run.last_seq, run.last_activity_at, run.status) == (2, AT + 5, RunStatus.RUNNING)
    assert_totals(run, invocation)


async def test_a_call_that_cannot_run_is_born_finished(database: Database, claim: Claim) -> None:
    calls = [PlannedCall(call_id="toolu_1", name="search_docs", idempotent=False, refusal="its input was cut off")]
    await database.write(append_turn, held(claim), assistant_turn(), calls, TOTALS, at=AT + 5)
    [call] = await ledger(database, claim)
    assert (call.state, call.content, call.is_error) == (CallState.FINISHED, "its input was cut off", True)
    assert (call.started_at, call.finished_at) == (None, AT + 5)


async def test_calls_start_and_finish_one_by_one(database: Database, claim: Claim) -> None:
    calls = [*CALLS, PlannedCall(call_id="toolu_3", name="no_such_tool", idempotent=False)]
    await database.write(append_turn, held(claim), assistant_turn(), calls, TOTALS, at=AT + 5)
    unknown = finished(2, "no tool no_such_tool", is_error=True)
    await database.write(start_calls, held(claim), 2, starting=[0, 1], finished=[unknown], at=AT + 6)
    assert [(call.state, call.started_at, call.finished_at) for call in await ledger(database, claim)] == [
        (CallState.STARTED, AT + 6, None),
        (CallState.STARTED, AT + 6, None),
        (CallState.FINISHED, None, AT + 6),
    ]
    blocks = [{"type": "text", "text": "a map"}]
    await database.write(finish_call, held(claim), 2, finished(1, blocks), at=AT + 7)
    assert [(call.state, call.content, call.is_error) for call in await ledger(database, claim)] == [
        (CallState.STARTED, None, None),
        (CallState.FINISHED, blocks, False),
        (CallState.FINISHED, "no tool no_such_tool", True),
    ]


async def test_a_batch_in_which_nothing_can_run_starts_nothing(database: Database, claim: Claim) -> None:
    await database.write(append_turn, held(claim), assistant_turn(), CALLS, TOTALS, at=AT + 5)
    both = [finished(0, "bad arguments", is_error=True), finished(1, "bad arguments", is_error=True)]
    await database.write(start_calls, held(claim), 2, starting=[], finished=both, at=AT + 6)
    assert {call.state for call in await ledger(database, claim)} == {CallState.FINISHED}


async def test_two_hundred_calls_are_written_by_the_statements_of_two(database: Database, claim: Claim) -> None:
    """A statement for each number of calls would have to be made each time, which for two hundred takes seconds."""
    statements: dict[int, list[str]] = {}
    seq = 2
    for count in (2, 200):
        said = statements[count] = []

        def note(*arguments: Any, said: list[str] = said) -> None:
            said.append(arguments[2])

        planned = [PlannedCall(call_id=f"toolu_{at}", name="lookup", idempotent=False) for at in range(count)]
        texts = [f'page {at}, "quoted"\n' for at in range(count)]
        refused = [finished(at, content, is_error=at % 2 == 0) for at, content in enumerate(texts)]
        sa.event.listen(database._engine.sync_engine, "before_cursor_execute", note)
        await database.write(append_turn, held(claim), assistant_turn(seq=seq), planned, TOTALS, at=AT + 5)
        await database.write(start_calls, held(claim), seq, starting=[], finished=refused, at=AT + 6)
        sa.event.remove(database._engine.sync_engine, "before_cursor_execute", note)
        calls = await database.read(load_calls, claim.run.id, seq)
        assert [(call.call_id, call.content, call.is_error) for call in calls] == [
            (f"toolu_{at}", content, at % 2 == 0) for at, content in enumerate(texts)
        ]
        seq += 1
    assert statements[2] == statements[200]


async def test_the_tool_boundary_stores_the_last_results_and_one_user_row(database: Database, claim: Claim) -> None:
    await database.write(append_turn, held(claim), assistant_turn(), CALLS, TOTALS, at=AT + 5)
    await database.write(start_calls, held(claim), 2, starting=[0, 1], finished=[], at=AT + 6)
    await database.write(finish_call, held(claim), 2, finished(0), at=AT + 7)
    last = [finished(1, "refused", is_error=True)]
    await database.write(append_results, held(claim), 2, finished=last, results=RESULTS, at=AT + 8)
    assert [call.state for call in await ledger(database, claim)] == [CallState.FINISHED] * 2
    stored = (await database.read(load_messages, claim.run.id))[-1]
    assert (stored.seq, stored.role, stored.content, stored.model) == (3, "user", RESULTS, None)
    run, _ = await state(database, claim)
    assert (run.last_seq, run.last_activity_at, run.status) == (3, AT + 8, RunStatus.RUNNING)


async def test_a_completed_invocation_leaves_its_run_free(database: Database, claim: Claim) -> None:
    settlement = completed()
    await database.write(settle, held(claim), settlement, turn=assistant_turn(), at=AT + 9)
    run, invocation = await state(database, claim)
    assert (run.status, run.worker_id, run.error, run.last_seq) == (RunStatus.COMPLETED, None, None, 2)
    assert (run.generation, run.last_activity_at) == (claim.run.generation, AT + 9)
    assert (invocation.status, invocation.result, invocation.error) == (RunStatus.COMPLETED, settlement.result, None)
    assert (invocation.last_frame, invocation.last_seq, invocation.settled_at) == (7, 2, AT + 9)
    assert not invocation.stream_closed
    assert_totals(run, invocation)
    assert [message.role for message in await database.read(load_messages, run.id)] == ["user", "assistant"]


async def test_a_failure_is_stored_on_run_and_invocation(database: Database, claim: Claim) -> None:
    """The last turn asked for calls that never ran: the user row that answers them comes in the same transaction."""
    error = {"code": "AGENT_MAX_STEPS", "message": "64 steps"}
    settlement = completed(event=RunEvent.FAIL, error=error, result={"finishReason": "max_steps"})
    turn = assistant_turn(stop_reason="tool_use")
    await database.write(settle, held(claim), settlement, turn=turn, results=RESULTS, at=AT + 9)
    run, invocation = await state(database, claim)
    assert (run.status, run.error, run.last_seq) == (RunStatus.FAILED, error, 3)
    assert (invocation.status, invocation.error, invocation.result) == (
        RunStatus.FAILED,
        error,
        {"finishReason": "max_steps"},
    )
    assert [(row.seq, row.role) for row in await database.read(load_messages, run.id)] == [
        (1, "user"),
        (2, "assistant"),
        (3, "user"),
    ]


async def test_a_new_turn_leaves_the_settled_invocation_as_it_was(database: Database, claim: Claim) -> None:
    await database.write(settle, held(claim), completed(), turn=assistant_turn(), at=AT + 9)
    _, settled = await state(database, claim)
    await database.write(accept_turn, new_turn(continues=claim.run.id, at=AT + 10))
    found = await database.read(reads.invocation_of, claim.invocation.id, OWNER)
    assert found is not None
    assert found[0] == settled


async def test_a_reset_stream_keeps_its_base(database: Database, claim: Claim) -> None:
    await database.write(set_frame_base, held(claim), 1_000_007, "redis-2")
    _, invocation = await state(database, claim)
    assert (invocation.frame_base, invocation.redis_run_id) == (1_000_007, "redis-2")


async def test_a_steps_turns_come_back_with_their_calls(database: Database, claim: Claim) -> None:
    await database.write(append_turn, held(claim), assistant_turn(2), CALLS, TOTALS, at=AT + 5)
    await database.write(append_results, held(claim), 2, finished=[], results=RESULTS, at=AT + 6)
    await database.write(settle, held(claim), completed(), turn=assistant_turn(4), at=AT + 7)
    _, invocation = await state(database, claim)
    steps = await database.read(reads.steps_of, invocation)
    assert [(turn.seq, [call.call_id for call in calls]) for turn, calls in steps] == [
        (2, ["toolu_1", "toolu_2"]),
        (4, []),
    ]


async def state(database: Database, claim: Claim) -> tuple[Run, Invocation]:
    found = await database.read(reads.run_of, claim.run.id, OWNER)
    assert found is not None
    run, invocation, _ = found
    return run, invocation


async def ledger(database: Database, claim: Claim) -> list[Call]:
    return await database.read(load_calls, claim.run.id, 2)


def assert_totals(run: Run, invocation: Invocation) -> None:
    assert (run.steps, run.usage, run.cost) == (TOTALS.run_steps, TOTALS.run_usage, TOTALS.run_cost)
    assert (invocation.steps, invocation.usage, invocation.cost) == (TOTALS.steps, TOTALS.usage, TOTALS.cost)
