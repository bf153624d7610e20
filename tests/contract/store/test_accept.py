"""Accepting a call: which run it creates or continues, and what it may not touch."""

from typing import Any

import anyio
import pytest
import sqlalchemy as sa
from tests.contract.store.races import started_and_blocked
from tests.contract.store.states import (
    AT,
    OWNER,
    TOTALS,
    accepted,
    claimed,
    completed,
    contents,
    held,
    new_turn,
    registered,
    run_row,
    settle,
    settled,
)
from tests.databases import transaction

from runyard.db import reads
from runyard.db.claims import give_back
from runyard.db.engine import Database
from runyard.db.tables import agent_inputs, agent_runs
from runyard.errors import AgentMismatch, RunBusy, RunNotFound
from runyard.lifecycle.accept import accept_turn
from runyard.runs import RunEvent, RunStatus

pytestmark = pytest.mark.anyio


async def test_a_call_creates_a_queued_run(database: Database) -> None:
    turn = new_turn(title="Swifts", metadata={"ticket": 7}, session_id="s1", roles=("admin",), options={"maxSteps": 3})
    run_id = (await database.write(accept_turn, turn)).run_id
    found = await database.read(reads.run_of, run_id, OWNER)
    assert found is not None
    run, invocation, waiting = found
    assert (run.id, run.status, run.generation, run.worker_id) == (turn.run_id, RunStatus.QUEUED, 0, None)
    assert (run.title, run.metadata, run.session_id, run.rank) == ("Swifts", {"ticket": 7}, "s1", AT)
    assert (invocation.id, invocation.stream_id) == (turn.invocation_id, turn.stream_id)
    assert (invocation.status, invocation.options, invocation.roles) == (RunStatus.QUEUED, {"maxSteps": 3}, ["admin"])
    assert [(item.id, item.position, item.content) for item in waiting] == [(turn.input_id, 1, turn.content)]


@pytest.mark.parametrize("event", [RunEvent.COMPLETE, RunEvent.FAIL, RunEvent.CANCEL])
async def test_a_settled_run_is_continued(database: Database, database_url: str, event: RunEvent) -> None:
    first = await accepted(database, title="Swifts", metadata={"a": 1})
    claim = await claimed(database, registered(database_url))
    error = {"code": "PROVIDER_ERROR", "message": "gone"} if event is RunEvent.FAIL else None
    await database.write(settle, held(claim), completed(event=event, error=error), at=AT + 2)
    turn = new_turn(continues=first.id, queue="bulk", at=AT + 3)
    assert (await database.write(accept_turn, turn)).run_id == first.id
    run = await run_row(database, first.id)
    assert (run.status, run.queue, run.rank, run.last_activity_at) == (RunStatus.QUEUED, "bulk", AT + 3, AT + 3)
    assert (run.invocation_id, run.error) == (turn.invocation_id, None)
    assert (run.title, run.metadata) == ("Swifts", {"a": 1}), "what the call does not name stays"
    assert (run.steps, run.generation, run.created_at) == (TOTALS.run_steps, 1, AT)
    assert await positions(database) == [1, 2]


async def test_continuing_replaces_title_and_metadata(database: Database, database_url: str) -> None:
    run = await settled(database, database_url, title="Swifts", metadata={"a": 1})
    await database.write(accept_turn, new_turn(continues=run, title="Terns", metadata={}))
    row = await run_row(database, run)
    assert (row.title, row.metadata) == ("Terns", {})


@pytest.mark.parametrize(
    "stranger", [{"user_id": "eve"}, {"tenant_id": "other"}, {"tenant_id": "other", "user_id": "eve"}]
)
async def test_a_foreign_run_is_as_unknown_as_none(database: Database, stranger: dict[str, str]) -> None:
    run = await accepted(database)
    before = await contents(database)
    for run_id in (run.id, "run_none"):
        with pytest.raises(RunNotFound) as caught:
            await database.write(accept_turn, new_turn(continues=run_id, **stranger))
        assert caught.value.fields == {"runId": run_id}
    assert await contents(database) == before


async def test_a_run_belongs_to_one_agent(database: Database, database_url: str) -> None:
    run = await settled(database, database_url)
    before = await contents(database)
    with pytest.raises(AgentMismatch) as caught:
        await database.write(accept_turn, new_turn(continues=run, agent="poet"))
    assert caught.value.fields == {"runId": run, "agent": "researcher"}
    assert await contents(database) == before


@pytest.mark.parametrize("by", ["continues", "session_id"])
async def test_a_busy_run_takes_no_call(database: Database, database_url: str, by: str) -> None:
    run = await accepted(database, session_id="s1")
    call = {"continues": run.id} if by == "continues" else {"session_id": "s1"}

    async def refused(status: RunStatus) -> None:
        before = await contents(database)
        with pytest.raises(RunBusy) as caught:
            await database.write(accept_turn, new_turn(**call, if_busy="reject"))
        assert caught.value.fields == {"runId": run.id, "status": status}
        assert await contents(database) == before

    await refused(RunStatus.QUEUED)
    claim = await claimed(database, registered(database_url))
    await refused(RunStatus.RUNNING)
    await database.write(give_back, run.id, claim.run.generation)
    await refused(RunStatus.QUEUED)


async def test_a_session_names_one_run_of_a_user_and_agent(database: Database, database_url: str) -> None:
    run = await settled(database, database_url, session_id="s1")
    assert (await database.write(accept_turn, new_turn(session_id="s1"))).run_id == run
    others = [
        new_turn(session_id="s1", **changes) for changes in ({"user_id": "eve"}, {"tenant_id": "b"}, {"agent": "poet"})
    ]
    for turn in others:
        assert (await database.write(accept_turn, turn)).run_id == turn.run_id
    assert (await database.write(accept_turn, new_turn())).run_id != run, "no session, no shared run"


async def test_of_two_calls_that_create_a_session_the_second_is_refused(database: Database, rival: Database) -> None:
    async with transaction(database) as first:
        turn = new_turn(session_id="s1", if_busy="reject")
        run_id = (await accept_turn(first, new_turn(session_id="s1"))).run_id
        async with started_and_blocked(rival, rival.write(accept_turn, turn)) as second:
            await first.commit()
    refused = second.exception()
    assert isinstance(refused, RunBusy)
    assert refused.fields == {"runId": run_id, "status": RunStatus.QUEUED}
    assert await positions(database) == [1]


async def test_a_session_whose_creation_is_undone_belongs_to_the_next(database: Database, rival: Database) -> None:
    turn = new_turn(session_id="s1")
    async with transaction(database) as first:
        await accept_turn(first, new_turn(session_id="s1"))
        async with started_and_blocked(rival, rival.write(accept_turn, turn)) as second:
            await first.rollback()
    assert second.result().run_id == turn.run_id
    assert await run_ids(database) == [turn.run_id]


@pytest.mark.parametrize("by", ["continues", "session_id"])
async def test_of_two_calls_that_continue_a_run_the_second_is_refused(
    database: Database, rival: Database, database_url: str, by: str
) -> None:
    run = await settled(database, database_url, session_id="s1")
    call = {"continues": run} if by == "continues" else {"session_id": "s1"}
    async with transaction(database) as first:
        turn = new_turn(**call, if_busy="reject")
        await accept_turn(first, new_turn(**call))
        async with started_and_blocked(rival, rival.write(accept_turn, turn)) as second:
            await first.commit()
    assert isinstance(second.exception(), RunBusy)
    assert await positions(database) == [1, 2]


async def test_many_calls_at_once_on_one_session_make_one_run(database: Database, rival: Database) -> None:
    outcomes: list[Any] = []

    async def call(through: Database) -> None:
        try:
            outcomes.append((await through.write(accept_turn, new_turn(session_id="s1", if_busy="reject"))).run_id)
        except RunBusy as busy:
            outcomes.append(busy)

    async with anyio.create_task_group() as group:
        for _ in range(4):
            group.start_soon(call, database)
            group.start_soon(call, rival)
    assert sorted(type(outcome).__name__ for outcome in outcomes) == ["RunBusy"] * 7 + ["str"]
    assert len(await run_ids(database)) == 1


async def positions(database: Database) -> list[int]:
    async def load(connection: Any) -> list[int]:
        return list(
            (await connection.execute(sa.select(agent_inputs.c.position).order_by(agent_inputs.c.position))).scalars()
        )

    return await database.read(load)


async def run_ids(database: Database) -> list[str]:
    async def load(connection: Any) -> list[str]:
        return list((await connection.execute(sa.select(agent_runs.c.id))).scalars())

    return await database.read(load)
