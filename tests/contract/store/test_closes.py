"""Settled invocations whose streams nobody has closed are found late, and only they."""

from typing import Any

import pytest
from tests.contract.store.states import (
    accepted,
    claimed,
    completed,
    contents,
    held,
    new_turn,
    registered,
    run_and_invocation,
    settle,
)

from runyard.clock import now_ms
from runyard.db.claims import Claim
from runyard.db.closes import BATCH, LATE_AFTER_MS, late_closes, mark_closed, set_closing_base
from runyard.db.engine import Database
from runyard.lifecycle.accept import accept_turn

pytestmark = pytest.mark.anyio


async def settled_ago(database: Database, database_url: str, age_ms: int, **changes: Any) -> Claim:
    await accepted(database, **changes)
    found = await claimed(database, registered(database_url))
    await database.write(settle, held(found), completed(), at=now_ms() - age_ms)
    return found


async def overdue(database: Database) -> list[str]:
    return [invocation.id for invocation in await database.read(late_closes)]


async def test_a_stream_is_overdue_after_a_while_the_longest_first(database: Database, database_url: str) -> None:
    second = await settled_ago(database, database_url, 2 * LATE_AFTER_MS)
    first = await settled_ago(database, database_url, 3 * LATE_AFTER_MS)
    await settled_ago(database, database_url, 0)
    await accepted(database)
    await claimed(database, registered(database_url))
    await accepted(database)
    assert await overdue(database) == [first.invocation.id, second.invocation.id]
    await database.write(mark_closed, [first.invocation.id])
    assert await overdue(database) == [second.invocation.id]


async def test_a_new_turn_does_not_hide_the_stream_before_it(database: Database, database_url: str) -> None:
    found = await settled_ago(database, database_url, 2 * LATE_AFTER_MS)
    await database.write(accept_turn, new_turn(continues=found.run.id))
    assert await overdue(database) == [found.invocation.id]


async def test_a_close_that_withdrew_frames_leaves_the_number_of_its_end(database: Database, database_url: str) -> None:
    one, other = [await settled_ago(database, database_url, 2 * LATE_AFTER_MS) for _ in range(2)]
    await database.write(mark_closed, [one.invocation.id, other.invocation.id], last_frames={one.invocation.id: 12})
    assert (await run_and_invocation(database, one.run.id))[1].last_frame == 12
    assert (await run_and_invocation(database, other.run.id))[1].last_frame == completed().last_frame
    assert await overdue(database) == []


async def test_no_more_than_a_batch_is_found(database: Database, database_url: str) -> None:
    worker = registered(database_url)
    for _ in range(BATCH + 1):
        await accepted(database)
        found = await claimed(database, worker)
        await database.write(settle, held(found), completed(), at=1)
    first = await overdue(database)
    assert len(first) == BATCH
    await database.write(mark_closed, first)
    assert len(await overdue(database)) == 1


async def test_closing_a_stream_anew_keeps_where_its_numbers_begin(database: Database, database_url: str) -> None:
    found = await settled_ago(database, database_url, 0)
    await database.write(set_closing_base, found.run.id, found.invocation.id, 1_000_007)
    _, invocation = await run_and_invocation(database, found.run.id)
    assert invocation.frame_base == 1_000_007


async def test_marking_streams_closed_touches_no_other(database: Database, database_url: str) -> None:
    found = await settled_ago(database, database_url, 0)
    before = await contents(database)
    await database.write(mark_closed, [])
    await database.write(mark_closed, ["inv_unknown"])
    assert await contents(database) == before
    for _ in range(2):
        await database.write(mark_closed, [found.invocation.id])
        assert (await run_and_invocation(database, found.run.id))[1].stream_closed
