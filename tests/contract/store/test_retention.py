"""What is old enough is deleted, a batch at a time, and nothing else: by its age on the database's clock."""

from typing import Any

import pytest
import sqlalchemy as sa
from tests.contract.store.states import (
    CALLS,
    OWNER,
    TENANT,
    TOTALS,
    USER,
    accepted,
    assistant_turn,
    claimed,
    completed,
    contents,
    finished,
    held,
    new_turn,
    registered,
    settle,
)
from tests.contract.store.test_changes import Reader
from tests.contract.store.test_editing import new_run, rows_of
from tests.databases import on_postgres, transaction

from runyard.clock import now_ms
from runyard.db import boundaries, retention, turns
from runyard.db.engine import Database
from runyard.db.idempotency import KEPT_MS, CallKey
from runyard.db.retention import CLOCKS_APART_MS, Forgotten
from runyard.db.tables import agent_manifests, agent_runs, idempotency_keys
from runyard.fsck.ledger import check_ledger
from runyard.fsck.snapshots import some_runs
from runyard.ids import RunId
from runyard.lifecycle.accept import accept_turn
from runyard.lifecycle.creating import create_idle_run
from runyard.runs import RunEvent

pytestmark = pytest.mark.anyio

DAY_MS = 86_400_000
OLD, YOUNG = 8 * DAY_MS, 6 * DAY_MS
AGE = 7 * DAY_MS


async def ended(database: Database, database_url: str, age_ms: int, *, calls: bool = False, **changes: Any) -> RunId:
    """A run that settled so long ago; with `calls`, after a turn that asked for two."""
    at = now_ms() - age_ms
    run = await accepted(database, at=at, **changes)
    found = await claimed(database, registered(database_url), at=at)
    if calls:
        await with_calls(database, held(found), at)
    await database.write(settle, held(found), completed(), at=at)
    return run.id


async def with_calls(database: Database, holding: Any, at: int) -> None:
    asks = [{"type": "tool_use", "id": call.call_id, "name": call.name, "input": {}} for call in CALLS]
    turn = assistant_turn(content=asks, stop_reason="tool_use")
    await database.write(turns.append_turn, holding, turn, CALLS, TOTALS, at=at)
    await database.write(turns.start_calls, holding, 2, starting=[0, 1], finished=[], at=at)
    results = [{"type": "tool_result", "tool_use_id": call.call_id, "content": "three pages"} for call in CALLS]
    await database.write(
        boundaries.append_results, holding, 2, finished=[finished(0), finished(1)], results=results, at=at
    )


async def test_runs_that_are_old_go_whole_and_the_feed_tells_it(database: Database, database_url: str) -> None:
    key = CallKey(key="k", request_hash="h")
    old = await ended(database, database_url, OLD, calls=True, call_key=key)
    young = await ended(database, database_url, YOUNG, calls=True)
    kept = await rows_of(database, young)
    feed = Reader(database, OWNER)
    await feed.news()
    done = await database.write(retention.forget_runs, age_ms=AGE)
    assert (done.rows, done.more, len(done.streams)) == (1, False, 1)
    assert await rows_of(database, old) == {"agent_deletions": 1}
    assert await rows_of(database, young) == kept
    assert await feed.news() == [("deleted", old, True)]
    assert await database.write(retention.forget_runs, age_ms=AGE) == Forgotten(rows=0, more=False)


@pytest.mark.parametrize("event", [RunEvent.COMPLETE, RunEvent.FAIL, RunEvent.CANCEL])
async def test_however_they_ended(database: Database, database_url: str, event: RunEvent) -> None:
    at = now_ms() - OLD
    await accepted(database, at=at)
    found = await claimed(database, registered(database_url), at=at)
    error = {"code": "RUN_CRASHED", "message": "x"} if event is RunEvent.FAIL else None
    await database.write(settle, held(found), completed(event=event, error=error), at=at)
    assert (await database.write(retention.forget_runs, age_ms=AGE)).rows == 1


async def test_idle_runs_are_at_rest_too(database: Database) -> None:
    await database.write(create_idle_run, new_run(at=now_ms() - OLD))
    assert (await database.write(retention.forget_runs, age_ms=AGE)).rows == 1


@pytest.mark.parametrize("status", ["queued", "running", "waiting"])
async def test_a_run_at_work_is_kept_however_old(database: Database, database_url: str, status: str) -> None:
    run = await ended(database, database_url, OLD, calls=True)
    await database.write(accept_turn, new_turn(continues=run, at=now_ms() - OLD))
    if status == "running":
        await claimed(database, registered(database_url), at=now_ms() - OLD)

    async def park(connection: Any) -> None:
        await connection.execute(sa.update(agent_runs).values(status=status))

    if status == "waiting":  # nothing makes it so yet
        await database.write(park)
    before = await contents(database)
    assert await database.write(retention.forget_runs, age_ms=AGE) == Forgotten(rows=0, more=False)
    assert await contents(database) == before


async def test_a_batch_is_a_batch(database: Database) -> None:
    count = retention.RUNS_A_BATCH + 1
    for number in range(count):
        await database.write(create_idle_run, new_run(at=now_ms() - OLD - number))
    first, second = (
        await database.write(retention.forget_runs, age_ms=AGE),
        await database.write(retention.forget_runs, age_ms=AGE),
    )
    assert [(done.rows, done.more) for done in (first, second)] == [(retention.RUNS_A_BATCH, True), (1, False)]


@on_postgres
async def test_what_somebody_has_locked_is_left_for_another_time(database: Database, rival: Database) -> None:
    locked, free = [(await database.write(create_idle_run, new_run(at=now_ms() - OLD)))[0] for _ in range(2)]
    async with transaction(rival) as other:
        await other.execute(sa.select(agent_runs.c.id).where(agent_runs.c.id == locked.id).with_for_update())
        assert (await database.write(retention.forget_runs, age_ms=AGE)).rows == 1
    assert await rows_of(database, free.id) == {"agent_deletions": 1}
    assert (await database.write(retention.forget_runs, age_ms=AGE)).rows == 1


@on_postgres
async def test_two_that_sweep_at_once_share_the_work(database: Database, rival: Database) -> None:
    for _ in range(3):
        await database.write(create_idle_run, new_run(at=now_ms() - OLD))
    async with transaction(rival) as other:
        assert (await retention.forget_runs(other, age_ms=AGE)).rows == 3
        assert (await database.write(retention.forget_runs, age_ms=AGE)).rows == 0


async def test_the_ledger_of_what_settled_long_ago_goes_and_the_transcript_stays(
    database: Database, database_url: str
) -> None:
    old = await ended(database, database_url, OLD, calls=True)
    young = await ended(database, database_url, YOUNG, calls=True)
    before = await rows_of(database, old)
    assert await database.write(retention.forget_calls, age_ms=AGE) == Forgotten(rows=2, more=False)
    after = await rows_of(database, old)
    assert before == after | {"agent_calls": 2}
    assert (await rows_of(database, young))["agent_calls"] == 2
    assert await database.write(retention.forget_calls, age_ms=AGE) == Forgotten(rows=0, more=False)
    for snapshot in await database.snapshot(some_runs, [old, young]):
        assert list(check_ledger(snapshot)) == []


async def test_the_ledger_of_a_call_in_progress_is_kept(database: Database, database_url: str) -> None:
    """Also where an earlier call of the same run is old enough."""
    at = now_ms() - OLD
    run = await ended(database, database_url, OLD, calls=True)
    await database.write(accept_turn, new_turn(continues=run, at=at))
    found = await claimed(database, registered(database_url), at=at)
    holding, seq = held(found), found.run.last_seq + 1
    await database.write(turns.append_turn, holding, assistant_turn(seq), CALLS, TOTALS, at=at)
    assert (await rows_of(database, run))["agent_calls"] == 4
    assert (await database.write(retention.forget_calls, age_ms=AGE)).rows == 2
    assert len(await database.read(turns.load_calls, run, seq)) == 2


async def test_keys_go_when_they_stand_for_nothing(database: Database) -> None:
    for key, age_ms in (("old", KEPT_MS + CLOCKS_APART_MS + 1000), ("late", KEPT_MS + 1000), ("new", 0)):
        await database.write(accept_turn, new_turn(call_key=CallKey(key=key, request_hash="h"), at=now_ms() - age_ms))
    assert await database.write(retention.forget_keys) == Forgotten(rows=1, more=False)
    assert await values(database, idempotency_keys.c.key) == {"late", "new"}


async def test_manifests_that_nobody_has_go(database: Database, database_url: str) -> None:
    registered(database_url, manifests={"researcher": ("v1", {"queue": "default"})})

    async def age(connection: Any) -> None:
        await connection.execute(sa.update(agent_manifests).values(last_seen=now_ms() - OLD))

    await database.write(age)
    registered(database_url, manifests={"researcher": ("v2", {"queue": "default"})})
    assert await database.write(retention.forget_manifests, age_ms=AGE) == Forgotten(rows=1, more=False)
    assert await values(database, agent_manifests.c.version) == {"v2"}


async def test_other_tenants_rows_are_as_old(database: Database, database_url: str) -> None:
    assert (TENANT, USER) != ("initech", "eve")
    await ended(database, database_url, OLD, tenant_id="initech", user_id="eve")
    await ended(database, database_url, OLD)
    assert (await database.write(retention.forget_runs, age_ms=AGE)).rows == 2


async def values(database: Database, column: sa.Column[Any]) -> set[Any]:
    async def load(connection: Any) -> set[Any]:
        return set((await connection.execute(sa.select(column))).scalars())

    return await database.read(load)
