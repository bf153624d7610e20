"""Runs changed by hand: created without a call, described, appended to, cleared, erased; never while one is at work."""

from typing import Any

import pytest
import sqlalchemy as sa
from tests.contract.store.races import started_and_blocked
from tests.contract.store.states import (
    AT,
    OWNER,
    TENANT,
    USER,
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
from tests.contract.store.states import assistant_turn as turn_of
from tests.databases import transaction

from runyard.db import reads
from runyard.db.engine import Database
from runyard.db.idempotency import CallKey
from runyard.db.scope import Scope
from runyard.db.tables import agent_messages, agent_runs, metadata
from runyard.errors import InvalidArgs, RunBusy, RunNotFound
from runyard.history import HistoryMessage
from runyard.ids import new_run_id
from runyard.lifecycle.accept import accept_turn
from runyard.lifecycle.cancelling import cancel_run
from runyard.lifecycle.creating import NewRun, create_idle_run
from runyard.lifecycle.editing import append_messages, clear_messages, describe_run, erase_run
from runyard.priorities import Priority
from runyard.runs import RunStatus

pytestmark = pytest.mark.anyio

CALL = {"type": "tool_use", "id": "t1", "name": "search", "input": {}}
RESULT = {"type": "tool_result", "tool_use_id": "t1", "content": "three"}
HISTORY = (HistoryMessage(role="user", content="hi"), HistoryMessage(role="assistant", content="hello"))


def new_run(**changes: Any) -> NewRun:
    values: dict[str, Any] = {
        "run_id": new_run_id(),
        "tenant_id": TENANT,
        "user_id": USER,
        "agent": "researcher",
        "queue": "default",
        "priority": Priority.BACKGROUND,
        "session_id": None,
        "title": "Swifts",
        "metadata": {"a": 1},
        "context": None,
        "history": HISTORY,
        "at": AT,
    }
    return NewRun(**values | changes)


async def test_an_idle_run_has_its_history_and_nothing_to_do(database: Database, database_url: str) -> None:
    new = new_run()
    run, created = await database.write(create_idle_run, new)
    assert created
    assert (run.id, run.status, run.invocation_id, run.last_seq) == (new.run_id, RunStatus.IDLE, None, 2)
    assert await transcript(database, run.id) == [("user", "hi", None), ("assistant", "hello", None)]
    found = await database.read(reads.run_of, run.id, OWNER)
    assert found == (run, None, [])
    (listed,) = await database.read(reads.runs_of, OWNER, reads.RunFilter(), before=None, limit=10)
    assert listed == (run, None)


async def test_a_turn_of_an_idle_run_goes_on_from_its_history(database: Database, database_url: str) -> None:
    run, _ = await database.write(create_idle_run, new_run())
    await database.write(accept_turn, new_turn(continues=run.id, content="and now?"))
    found = await claimed(database, registered(database_url))
    assert found.run.id == run.id
    assert [row[1] for row in await transcript(database, run.id)] == ["hi", "hello", "and now?"]


async def test_an_idle_run_is_cancelled_at_once(database: Database) -> None:
    run, _ = await database.write(create_idle_run, new_run())
    done = await database.write(cancel_run, run.id, OWNER, at=AT)
    assert (done.status, done.ending) == (RunStatus.CANCELLED, None)
    assert (await run_row(database, run.id)).status is RunStatus.CANCELLED


async def test_a_session_is_created_once(database: Database) -> None:
    first, _ = await database.write(create_idle_run, new_run(session_id="s1"))
    again, created = await database.write(create_idle_run, new_run(session_id="s1", history=(), title="T"))
    assert (again, created) == (first, False)
    before = await contents(database)
    with pytest.raises(InvalidArgs, match=first.id):
        await database.write(create_idle_run, new_run(session_id="s1"))
    assert await contents(database) == before
    turn = await database.write(accept_turn, new_turn(session_id="s1"))
    assert turn.run_id == first.id


async def test_a_creation_of_unknown_outcome_is_repeated(database: Database) -> None:
    new = new_run()
    first = await database.write(create_idle_run, new)
    before = await contents(database)
    assert await database.write(create_idle_run, new) == first
    assert await contents(database) == before


async def test_a_call_may_bring_its_history(database: Database, database_url: str) -> None:
    turn = new_turn(history=HISTORY, content="and now?")
    await database.write(accept_turn, turn)
    run = await run_row(database, turn.run_id)
    assert (run.status, run.last_seq) == (RunStatus.QUEUED, 2)
    await claimed(database, registered(database_url))
    assert [row[1] for row in await transcript(database, turn.run_id)] == ["hi", "hello", "and now?"]


async def test_history_that_does_not_fit_stores_nothing(database: Database, database_url: str) -> None:
    run = await settled(database, database_url)
    before = await contents(database)
    broken = (HistoryMessage(role="assistant", content=[CALL]),)
    for refused in (
        database.write(accept_turn, new_turn(history=broken)),
        database.write(accept_turn, new_turn(history=broken, continues=run)),
        database.write(accept_turn, new_turn(history=(), content=[RESULT], continues=run)),
        database.write(create_idle_run, new_run(history=broken)),
        database.write(append_messages, run, OWNER, broken, at=AT),
    ):
        with pytest.raises(InvalidArgs):
            await refused
    assert await contents(database) == before


async def test_a_busy_run_takes_no_history(database: Database) -> None:
    run = await accepted(database)
    before = await contents(database)
    with pytest.raises(RunBusy):
        await database.write(accept_turn, new_turn(continues=run.id, history=HISTORY))
    assert await contents(database) == before


async def test_messages_are_appended_behind_the_transcript(database: Database, database_url: str) -> None:
    run = await settled(database, database_url)
    length = (await run_row(database, run)).last_seq
    rows = await database.write(append_messages, run, OWNER, HISTORY, at=AT + 9)
    assert [(row.seq, row.role, row.content, row.created_at) for row in rows] == [
        (length + 1, "user", "hi", AT + 9),
        (length + 2, "assistant", "hello", AT + 9),
    ]
    stored = await run_row(database, run)
    assert (stored.last_seq, stored.last_activity_at, stored.status) == (length + 2, AT + 9, RunStatus.COMPLETED)


async def test_a_result_answers_the_call_that_ends_the_transcript(database: Database) -> None:
    asks = (HistoryMessage(role="user", content="hi"), HistoryMessage(role="assistant", content=[CALL]))
    answer = (HistoryMessage(role="user", content=[RESULT]),)
    run, _ = await database.write(create_idle_run, new_run(history=()))
    with pytest.raises(InvalidArgs):
        await database.write(append_messages, run.id, OWNER, answer, at=AT)
    await database.write(append_messages, run.id, OWNER, asks + answer, at=AT)
    assert (await run_row(database, run.id)).last_seq == 3


async def test_title_and_metadata_change_on_their_own(database: Database) -> None:
    run = await accepted(database, title="Swifts", metadata={"a": 1})
    changed = await database.write(describe_run, run.id, OWNER, values={"title": None}, at=AT + 5)
    assert (changed.title, changed.metadata, changed.last_activity_at) == (None, {"a": 1}, AT + 5)
    changed = await database.write(describe_run, run.id, OWNER, values={"metadata": {"b": 2}}, at=AT + 6)
    assert (changed.title, changed.metadata, changed.status) == (None, {"b": 2}, RunStatus.QUEUED)


async def test_a_cleared_run_begins_anew(database: Database, database_url: str) -> None:
    run = await with_everything(database, database_url)
    other = await settled(database, database_url)
    streams = await database.write(clear_messages, run, OWNER, at=AT + 9)
    assert len(streams) == 2
    stored = await run_row(database, run)
    assert (stored.last_seq, stored.invocation_id, stored.session_id, stored.title) == (0, None, "s1", "Swifts")
    assert stored.steps > 0, "what it has cost is not forgotten"
    assert await rows_of(database, run) == {"agent_runs": 1, "agent_deletions": 1, "idempotency_keys": 1}
    assert (await rows_of(database, other))["agent_messages"] > 0
    await database.write(accept_turn, new_turn(continues=run, content="again"))
    await claimed(database, registered(database_url))
    assert [(seq, text) for seq, text in await numbered(database, run)] == [(1, "again")]


async def test_an_erased_run_leaves_nothing(database: Database, database_url: str) -> None:
    run = await with_everything(database, database_url)
    other = await settled(database, database_url)
    assert len(await database.write(erase_run, run, OWNER, at=AT)) == 2
    assert await rows_of(database, run) == {"agent_deletions": 1}
    assert (await rows_of(database, other))["agent_messages"] > 0
    with pytest.raises(RunNotFound):
        await database.write(erase_run, run, OWNER, at=AT)
    repeated = new_turn(call_key=CallKey(key="k", request_hash="h"))
    assert not (await database.write(accept_turn, repeated)).repeated, "its key went with it"


@pytest.mark.parametrize("status", ["queued", "running"])
@pytest.mark.parametrize("edit", [append_messages, clear_messages, erase_run])
async def test_a_run_at_work_is_left_alone(database: Database, database_url: str, status: str, edit: Any) -> None:
    run = await accepted(database)
    if status == "running":
        await claimed(database, registered(database_url))
    before = await contents(database)
    with pytest.raises(RunBusy) as busy:
        await database.write(edit, run.id, OWNER, *arguments(edit), **named(edit))
    assert busy.value.fields["status"] == status
    assert await contents(database) == before


@pytest.mark.parametrize("stranger", [{"user_id": "eve"}, {"tenant_id": "other"}])
@pytest.mark.parametrize("edit", [append_messages, clear_messages, erase_run, describe_run])
async def test_a_strangers_run_does_not_exist(
    database: Database, database_url: str, stranger: dict[str, str], edit: Any
) -> None:
    run = await settled(database, database_url)
    owner = Scope.of_user(**{"tenant_id": TENANT, "user_id": USER} | stranger)
    before = await contents(database)
    for run_id in (run, "run_none"):
        with pytest.raises(RunNotFound):
            await database.write(edit, run_id, owner, *arguments(edit), **named(edit))
    assert await contents(database) == before


async def test_a_turn_that_comes_first_keeps_its_run_from_being_erased(
    database: Database, rival: Database, database_url: str
) -> None:
    run = await settled(database, database_url)
    async with transaction(database) as first:
        await accept_turn(first, new_turn(continues=run))
        async with started_and_blocked(rival, rival.write(erase_run, run, OWNER, at=AT)) as second:
            await first.commit()
    assert isinstance(second.exception(), RunBusy)


async def test_a_turn_that_comes_second_finds_no_run(database: Database, rival: Database, database_url: str) -> None:
    run = await settled(database, database_url)
    async with transaction(database) as first:
        await erase_run(first, run, OWNER, at=AT)
        async with started_and_blocked(rival, rival.write(accept_turn, new_turn(continues=run))) as second:
            await first.commit()
    assert isinstance(second.exception(), RunNotFound)
    assert await rows_of(database, run) == {"agent_deletions": 1}


def arguments(edit: Any) -> list[Any]:
    return [HISTORY] if edit is append_messages else []


def named(edit: Any) -> dict[str, Any]:
    values = {"values": {"title": "T"}} if edit is describe_run else {}
    return {**values, "at": AT}


async def with_everything(database: Database, database_url: str) -> str:
    """A settled run of two invocations, with a row in every table that has one of a run's."""
    turn = new_turn(session_id="s1", title="Swifts", call_key=CallKey(key="k", request_hash="h"))
    await database.write(accept_turn, turn)
    worker = registered(database_url)
    await database.write(settle, held(await claimed(database, worker)), completed(), turn=turn_of(), at=AT + 2)
    await database.write(accept_turn, new_turn(continues=turn.run_id, at=AT + 3))
    found = await claimed(database, worker)
    await database.write(settle, held(found), completed(), turn=turn_of(4, content=[CALL]), at=AT + 4)
    return turn.run_id


async def transcript(database: Database, run_id: str) -> list[tuple[str, Any, str | None]]:
    async def load(connection: Any) -> list[tuple[str, Any, str | None]]:
        columns = agent_messages.c
        rows = await connection.execute(
            sa.select(columns.role, columns.content, columns.invocation_id)
            .where(columns.run_id == run_id)
            .order_by(columns.seq)
        )
        return [tuple(row) for row in rows]

    return await database.read(load)


async def numbered(database: Database, run_id: str) -> list[tuple[int, Any]]:
    async def load(connection: Any) -> list[tuple[int, Any]]:
        columns = agent_messages.c
        rows = await connection.execute(sa.select(columns.seq, columns.content).where(columns.run_id == run_id))
        return sorted(tuple(row) for row in rows)

    return await database.read(load)


async def rows_of(database: Database, run_id: str) -> dict[str, int]:
    """How many rows each table has of this run; those without any are left out."""

    async def load(connection: Any) -> dict[str, int]:
        counts = {}
        for table in metadata.sorted_tables:
            column = table.c.id if table is agent_runs else table.c.get("run_id")
            if column is not None:
                statement = sa.select(sa.func.count()).select_from(table).where(column == run_id)
                counts[table.name] = (await connection.execute(statement)).scalar_one()
        return {name: count for name, count in counts.items() if count}

    return await database.read(load)
