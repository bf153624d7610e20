"""`runyard fsck` on rows: whatever is broken by hand in the database is found, and nothing else."""

from typing import Any

import pytest
from tests.contract.execution.worker import Settled, Worker
from tests.contract.fsck.inspecting import codes, execute, found, inspection, kept_for_ever, two_steps
from tests.contract.store import states
from tests.fakes.rows import tool_use

from runyard.blocks import tool_result
from runyard.db import claims
from runyard.fsck import snapshots
from runyard.fsck.findings import Code, CouldNotLookError
from runyard.fsck.inspection import Scope
from runyard.history import HistoryMessage
from runyard.lifecycle.accept import accept_turn
from runyard.lifecycle.cancelling import cancel_run
from runyard.lifecycle.editing import append_messages, clear_messages

pytestmark = pytest.mark.anyio


@pytest.fixture
async def settled(worker: Worker) -> Settled:
    return await two_steps(worker)


@pytest.fixture
async def queued(worker: Worker) -> states.Run:
    return await states.accepted(worker.database)


async def test_nothing_is_found_where_nothing_is_broken(worker: Worker, settled: Settled, queued: states.Run) -> None:
    looking = inspection(worker)
    assert [finding async for finding in looking.findings(Scope(grace_s=0))] == []
    assert looking.progress == "2 runs, 2 invocations, 1 streams, 3 keys, 0 to look at again"


RESULT = '[{"type": "tool_result", "tool_use_id": "a", "content": "three pages"}]'
EMPTY_ERROR = '[{"type": "tool_result", "tool_use_id": "a", "is_error": true}]'
STRANGE_RESULT = RESULT.replace("]", ', {"type": "tool_result", "tool_use_id": "b"}]')
TWICE = RESULT.replace("]", f", {RESULT[1:]}")
OTHER_USAGE = '{"input_tokens": 9999}'
IN_ROW_3 = "UPDATE agent_messages SET content = :content WHERE seq = 3"

BROKEN: list[tuple[Code, list[str], dict[str, Any]]] = [
    (Code.RUN_STATUS, ["UPDATE agent_runs SET status = 'failed'"], {}),
    (Code.RUN_STATUS, ["UPDATE agent_runs SET invocation_id = 'inv_none'"], {}),
    (Code.TRANSCRIPT_ORDER, ["UPDATE agent_messages SET invocation_id = 'inv_none' WHERE seq = 3"], {}),
    (Code.INVOCATION_RESULT, ["UPDATE agent_invocations SET result = NULL"], {}),
    (Code.INVOCATION_RESULT, ["UPDATE agent_invocations SET last_seq = 9"], {}),
    (Code.TOTALS, ["UPDATE agent_runs SET steps = 1"], {}),
    (Code.TOTALS, ["UPDATE agent_runs SET usage = :usage"], {"usage": "{}"}),
    (Code.TOTALS, ["UPDATE agent_messages SET usage = :usage WHERE seq = 2"], {"usage": OTHER_USAGE}),
    (Code.INPUT_FOLDED, ["UPDATE agent_inputs SET folded_in_seq = 9"], {}),
    (Code.INPUT_FOLDED, ["UPDATE agent_inputs SET folded_in_seq = 2"], {}),
    (Code.INPUT_FOLDED, ["UPDATE agent_inputs SET content = :content"], {"content": '"What else?"'}),
    (Code.INPUT_STRANDED, ["UPDATE agent_inputs SET folded_in_seq = NULL"], {}),
    (Code.INPUT_STRANDED, ["UPDATE agent_inputs SET folded_in_seq = NULL, invocation_id = 'inv_none'"], {}),
    (Code.TRANSCRIPT_ORDER, ["UPDATE agent_runs SET last_seq = 5"], {}),
    (Code.TRANSCRIPT_CALLS, [IN_ROW_3], {"content": '"no result"'}),
    (Code.TRANSCRIPT_CALLS, [IN_ROW_3], {"content": TWICE}),
    (Code.TRANSCRIPT_CALLS, [IN_ROW_3], {"content": STRANGE_RESULT}),
    (
        Code.TRANSCRIPT_REQUEST,
        [IN_ROW_3, "UPDATE agent_calls SET content = NULL, is_error = TRUE"],
        {"content": EMPTY_ERROR},
    ),
    (Code.LEDGER_CALLS, ["DELETE FROM agent_calls"], {}),
    (Code.LEDGER_CALLS, ["UPDATE agent_calls SET name = 'other'"], {}),
    (Code.LEDGER_OPEN, ["UPDATE agent_calls SET state = 'planned'"], {}),
    (Code.LEDGER_OPEN, ["UPDATE agent_calls SET state = 'started'"], {}),
    (Code.LEDGER_RESULT, ["UPDATE agent_calls SET content = :content"], {"content": '"two pages"'}),
    (Code.LEDGER_RESULT, ["UPDATE agent_calls SET is_error = TRUE"], {}),
    (Code.ROWS_UNREADABLE, [IN_ROW_3], {"content": '[{"tool_use_id": "a"}]'}),
]


@pytest.mark.parametrize(("code", "statements", "parameters"), BROKEN)
async def test_what_is_broken_of_a_settled_run_is_found(
    worker: Worker, settled: Settled, code: Code, statements: list[str], parameters: dict[str, Any]
) -> None:
    await execute(worker, *statements, **parameters)
    (finding,) = await found(worker)
    assert (finding.code, finding.run_id) == (code, settled.run.id)


async def test_a_row_that_is_gone_takes_others_with_it(worker: Worker, settled: Settled) -> None:
    await execute(worker, "DELETE FROM agent_messages WHERE seq = 3")
    assert await codes(worker) == [Code.TRANSCRIPT_ORDER, Code.TRANSCRIPT_CALLS]


async def test_a_call_of_a_row_that_asks_for_none(worker: Worker, settled: Settled) -> None:
    await execute(worker, "UPDATE agent_calls SET assistant_seq = 4")
    assert await codes(worker) == [Code.LEDGER_CALLS, Code.LEDGER_CALLS]


@pytest.mark.parametrize(
    ("code", "statement"),
    [
        (Code.RUN_QUEUE, "UPDATE agent_runs SET queue = ''"),
        (Code.RUN_QUEUE, "UPDATE agent_runs SET agent = ''"),
        (Code.RUN_QUEUE, "UPDATE agent_runs SET rank = rank + 1"),
        (Code.RUN_PENDING, "DELETE FROM agent_inputs"),
        (Code.RUN_STATUS, "UPDATE agent_invocations SET status = 'running'"),
    ],
)
async def test_what_is_broken_of_a_queued_run_is_found(
    worker: Worker, queued: states.Run, code: Code, statement: str
) -> None:
    await execute(worker, statement)
    (finding,) = await found(worker)
    assert (finding.code, finding.run_id) == (code, queued.id)


async def test_a_run_that_runs_nowhere(worker: Worker) -> None:
    claim = await worker.claim()
    await execute(worker, "UPDATE agent_runs SET worker_id = NULL")
    (finding,) = await found(worker)
    assert (finding.code, finding.run_id) == (Code.RUN_WORKER, claim.run.id)


async def test_a_run_that_waits_for_nothing(worker: Worker, settled: Settled) -> None:
    await worker.store._client.delete(
        worker.store.keys.frames(settled.invocation.stream_id), worker.store.keys.meta(settled.invocation.stream_id)
    )
    await execute(
        worker,
        "UPDATE agent_runs SET status = 'waiting'",
        "UPDATE agent_invocations SET status = 'waiting', settled_at = NULL",
    )
    assert await codes(worker) == [Code.RUN_PENDING]


async def test_an_invocation_that_nobody_will_run(worker: Worker, settled: Settled) -> None:
    run = settled.run
    await worker.database.write(accept_turn, states.new_turn(continues=run.id))
    assert await codes(worker) == []
    undone = "UPDATE agent_runs SET status = 'completed', invocation_id = :invocation"
    await execute(worker, undone, invocation=run.invocation_id)
    assert await codes(worker) == [Code.INVOCATION_STRANDED]


async def test_a_call_that_waits_to_be_next_is_not_stranded(worker: Worker) -> None:
    claim = await worker.claim()
    await worker.database.write(accept_turn, states.new_turn(continues=claim.run.id, if_busy="cancel"))
    await worker.database.write(claims.give_back, claim.run.id, claim.run.generation)
    assert await codes(worker) == []
    await worker.database.write(cancel_run, claim.run.id, states.OWNER, at=states.AT + 9)
    assert await codes(worker) == [Code.STREAM_OPEN]  # whose closing the canceller owes


async def test_runs_that_callers_changed_by_hand_are_sound(worker: Worker, settled: Settled) -> None:
    history = [HistoryMessage(role="user", content="hi"), HistoryMessage(role="assistant", content=[tool_use("b")])]
    history += [HistoryMessage(role="user", content=[tool_result("b", "done", is_error=False)])]
    await worker.database.write(append_messages, settled.run.id, states.OWNER, history, at=states.AT + 5)
    assert await codes(worker) == []
    await two_steps(worker, continues=settled.run.id)
    assert await codes(worker) == []
    streams = await worker.database.write(clear_messages, settled.run.id, states.OWNER, at=states.AT + 6)
    await worker.store.forget(streams)
    assert await codes(worker) == []


async def test_findings_tell_nothing_of_what_was_said(worker: Worker, settled: Settled) -> None:
    await execute(worker, "UPDATE agent_messages SET content = :content WHERE seq <> 2", content='[{"type": "secret"}]')
    told = [finding.to_line() for finding in await found(worker)]
    assert told
    assert not any("secret" in line or "page" in line or "Found" in line for line in told)


# What is looked at -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("limits", [{"RUNS_A_PAGE": 2}, {"ROWS_A_PAGE": 1}])
async def test_every_page_is_looked_at(worker: Worker, monkeypatch: pytest.MonkeyPatch, limits: dict[str, int]) -> None:
    for name, value in limits.items():
        monkeypatch.setattr(snapshots, name, value)
    monkeypatch.setattr(snapshots, "_page", snapshots._page.limit(snapshots.RUNS_A_PAGE))
    runs = sorted([(await two_steps(worker)).run.id for _ in range(5)])
    await execute(worker, "UPDATE agent_runs SET steps = 1")
    assert [finding.run_id for finding in await found(worker)] == runs


async def test_one_run_alone(worker: Worker, settled: Settled) -> None:
    other = await two_steps(worker)
    await execute(worker, "UPDATE agent_runs SET steps = 1 WHERE id = :run", run=settled.run.id)
    async with kept_for_ever(worker, worker.store.keys.frames(settled.invocation.stream_id)):
        assert await codes(worker, run_id=settled.run.id) == [Code.TOTALS]
        assert await codes(worker, run_id=other.run.id) == []
    with pytest.raises(CouldNotLookError, match="there is no run run_none"):
        await found(worker, run_id="run_none")


async def test_runs_that_were_active_since(worker: Worker, settled: Settled) -> None:
    await execute(worker, "UPDATE agent_runs SET steps = 1")
    assert await codes(worker, since_ms=settled.run.last_activity_at) == [Code.TOTALS]
    assert await codes(worker, since_ms=settled.run.last_activity_at + 1) == []
