"""Keys of calls: taken with the acceptance, by one of two, and by no call that was refused."""

from dataclasses import replace
from typing import Any

import pytest
from tests.contract.store.races import started_and_blocked
from tests.contract.store.states import AT, TENANT, accepted, contents, new_turn, settled
from tests.databases import transaction

from runyard.db.engine import Database
from runyard.db.idempotency import KEPT_MS, CallKey
from runyard.db.scope import Scope
from runyard.errors import IdempotencyMismatch, RunBusy, RunNotFound
from runyard.ids import new_input_id
from runyard.lifecycle.accept import accept_turn
from runyard.lifecycle.new_turn import NewTurn

pytestmark = pytest.mark.anyio


def keyed(key: str = "order-7", request_hash: str = "h1", **changes: Any) -> NewTurn:
    return new_turn(call_key=CallKey(key=key, request_hash=request_hash), **changes)


async def test_a_repeated_call_is_the_first_one(database: Database) -> None:
    first = await database.write(accept_turn, keyed(session_id="s1"))
    before = await contents(database)
    again = await database.write(accept_turn, keyed(session_id="s1"))
    assert (first.repeated, again.repeated) == (False, True)
    for name in ("run_id", "invocation_id", "input_id", "stream_id", "session_id", "status", "queued"):
        assert getattr(again, name) == getattr(first, name), name
    assert await contents(database) == before


async def test_a_repeated_turn_of_an_older_run_names_that_run(database: Database, database_url: str) -> None:
    run = await settled(database, database_url)
    first = await database.write(accept_turn, keyed(continues=run))
    again = await database.write(accept_turn, keyed(continues=run))
    assert again.run_id == first.run_id == run
    assert again.invocation_id == first.invocation_id


async def test_repeated_steering_steers_once(database: Database) -> None:
    run = await accepted(database)
    first = await database.write(accept_turn, keyed(continues=run.id))
    await database.write(accept_turn, new_turn(continues=run.id))
    again = await database.write(accept_turn, keyed(continues=run.id))
    assert (first.queued, again.queued) == (1, 1), "the receipt is the first one's"
    assert again.input_id == first.input_id
    assert again.invocation_id == run.invocation_id


async def test_another_request_under_the_same_key_is_refused(database: Database) -> None:
    await database.write(accept_turn, keyed())
    before = await contents(database)
    with pytest.raises(IdempotencyMismatch):
        await database.write(accept_turn, keyed(request_hash="h2"))
    assert await contents(database) == before


@pytest.mark.parametrize("other", [{"user_id": "eve"}, {"tenant_id": "other"}])
async def test_a_key_is_its_callers_own(database: Database, other: dict[str, str]) -> None:
    first = await database.write(accept_turn, keyed())
    second = await database.write(accept_turn, keyed(request_hash="h2", **other))
    assert not second.repeated
    assert second.run_id != first.run_id


async def test_whoever_may_see_the_run_no_more_repeats_nothing(database: Database) -> None:
    """An admin's call on somebody's run, sent again by one who is no admin any more."""
    run = await accepted(database)
    call = keyed(user_id="root", scope=Scope.of_tenant(TENANT), continues=run.id)
    await database.write(accept_turn, call)
    assert (await database.write(accept_turn, replace(call, input_id=new_input_id()))).repeated
    before = await contents(database)
    with pytest.raises(RunNotFound):
        await database.write(accept_turn, replace(call, input_id=new_input_id(), scope=Scope.of_user(TENANT, "root")))
    assert await contents(database) == before


async def test_a_refused_call_takes_no_key(database: Database) -> None:
    run = await accepted(database)
    before = await contents(database)
    with pytest.raises(RunBusy):
        await database.write(accept_turn, keyed(continues=run.id, if_busy="reject"))
    assert await contents(database) == before
    assert not (await database.write(accept_turn, keyed(continues=run.id, if_busy="steer"))).repeated


async def test_a_key_is_forgotten_after_a_day(database: Database) -> None:
    first = await database.write(accept_turn, keyed(at=AT))
    assert (await database.write(accept_turn, keyed(at=AT + KEPT_MS))).repeated
    later = await database.write(accept_turn, keyed(request_hash="h2", at=AT + KEPT_MS + 1))
    assert not later.repeated
    assert later.run_id != first.run_id


async def test_of_two_at_once_one_is_taken_and_the_other_finds_it(database: Database, rival: Database) -> None:
    first, second = keyed(), keyed()
    async with transaction(database) as connection:
        await accept_turn(connection, first)
        async with started_and_blocked(rival, rival.write(accept_turn, second)) as waiting:
            await connection.commit()
    found = waiting.result()
    assert found.repeated
    assert (found.run_id, found.input_id) == (first.run_id, first.input_id)


async def test_a_commit_of_unknown_outcome_is_found_again_as_its_own(database: Database) -> None:
    turn = keyed()
    first = await database.write(accept_turn, turn)
    before = await contents(database)
    again = await database.write(accept_turn, turn)
    assert again == first
    assert not again.repeated, "who accepts it still owes the wake-up"
    assert await contents(database) == before
