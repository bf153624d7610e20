"""What the gateway reads: each row only by its owner, lists newest first, pages without gap or double."""

from typing import Any

import pytest
from tests.contract.store.states import (
    AT,
    CALLS,
    OWNER,
    TENANT,
    TOTALS,
    USER,
    accepted,
    assistant_turn,
    claimed,
    completed,
    held,
    new_turn,
    registered,
    run_and_invocation,
    settle,
)

from runyard.db import reads
from runyard.db.boundaries import append_results
from runyard.db.claims import Claim
from runyard.db.engine import Database
from runyard.db.positions import POSITION_MAX, queue_positions
from runyard.db.records import Invocation, Run
from runyard.db.scope import Scope
from runyard.db.turns import append_turn
from runyard.lifecycle.accept import accept_turn
from runyard.runs import RunStatus

pytestmark = pytest.mark.anyio

STRANGERS = [
    Scope.of_user("acme", "eve"),
    Scope.of_user("other", "ada"),
]


@pytest.fixture
async def claim(database: Database, database_url: str) -> Claim:
    """A run with a settled turn of four rows."""
    await accepted(database)
    claim = await claimed(database, registered(database_url))
    await database.write(append_turn, held(claim), assistant_turn(2), CALLS, TOTALS, at=AT + 2)
    await database.write(append_results, held(claim), 2, finished=[], results=[], at=AT + 3)
    await database.write(settle, held(claim), completed(), turn=assistant_turn(4), at=AT + 4)
    return claim


@pytest.mark.parametrize("stranger", STRANGERS, ids=["user", "tenant"])
async def test_what_is_not_yours_is_not_there(database: Database, claim: Claim, stranger: Scope) -> None:
    run_id, invocation = claim.run.id, claim.invocation
    messages: dict[str, Any] = {"after_seq": None, "descending": False, "limit": 10}
    for owner, run, call in ((stranger, run_id, invocation), (OWNER, "run_none", None)):
        assert await database.read(reads.run_of, run, owner) is None
        assert await database.read(reads.messages_of, run, owner, **messages) is None
        assert await database.read(reads.invocations_of, run, owner, before=None, limit=10) is None
        assert await database.read(reads.invocation_of, call.id if call else "inv_none", owner) is None
        assert await database.read(reads.invocation_of_stream, call.stream_id if call else "st_none", owner) is None
    assert await database.read(reads.runs_of, stranger, reads.RunFilter(), before=None, limit=10) == []


SCOPES = {
    "admin": Scope.of_tenant("acme"),
    "service": Scope(tenants=("other", "acme"), user_id=None),
}


@pytest.mark.parametrize("scope", SCOPES.values(), ids=SCOPES.keys())
async def test_a_scope_may_hold_the_runs_of_many(database: Database, claim: Claim, scope: Scope) -> None:
    run_id, invocation = claim.run.id, claim.invocation
    found = await database.read(reads.run_of, run_id, scope)
    assert found is not None
    assert found[0].user_id == "ada"
    assert await database.read(reads.invocation_of, invocation.id, scope) is not None
    assert await database.read(reads.invocation_of_stream, invocation.stream_id, scope) is not None
    assert await database.read(reads.messages_of, run_id, scope, after_seq=None, descending=False, limit=10)
    await accepted(database, user_id="eve")
    await accepted(database, tenant_id="other")
    await accepted(database, tenant_id="third")
    listed = await database.read(reads.runs_of, scope, reads.RunFilter(), before=None, limit=10)
    assert {run.tenant_id for run, _ in listed} == set(scope.tenants)
    assert {run.user_id for run, _ in listed if run.tenant_id == "acme"} == {"ada", "eve"}


async def test_who_continues_a_run_does_not_come_to_own_it(database: Database, claim: Claim) -> None:
    turn = new_turn(user_id="root", continues=claim.run.id, scope=Scope.of_tenant("acme"), roles=("admin",))
    assert (await database.write(accept_turn, turn)).run_id == claim.run.id
    run, invocation = await run_and_invocation(database, claim.run.id)
    assert (run.user_id, invocation.roles) == ("ada", ["admin"])


async def test_a_scope_is_narrowed_and_never_widened() -> None:
    mine, admin = Scope.of_user("acme", "ada"), Scope.of_tenant("acme")
    service = Scope(tenants=("acme", "other"), user_id=None)
    assert mine.within(tenant_id=None, user_id=None) == mine
    assert mine.within(tenant_id="acme", user_id="ada") == mine
    assert mine.within(tenant_id="acme", user_id="eve") is None
    assert mine.within(tenant_id="other", user_id=None) is None
    assert admin.within(tenant_id=None, user_id="ada") == mine
    assert admin.within(tenant_id="other", user_id="ada") is None
    assert service.within(tenant_id="acme", user_id=None) == admin
    assert service.within(tenant_id="third", user_id=None) is None


async def test_an_invocation_is_found_by_its_id_and_by_its_stream(database: Database, claim: Claim) -> None:
    by_id = await database.read(reads.invocation_of, claim.invocation.id, OWNER)
    by_stream = await database.read(reads.invocation_of_stream, claim.invocation.stream_id, OWNER)
    assert by_id == by_stream
    assert by_id is not None
    invocation, run = by_id
    assert (invocation.id, invocation.run_id, run.id) == (claim.invocation.id, claim.run.id, claim.run.id)


async def test_many_streams_are_looked_up_in_one_statement(database: Database, claim: Claim) -> None:
    other = new_turn(user_id="eve")
    await database.write(accept_turn, other)
    streams = [claim.invocation.stream_id, other.stream_id, "st_none"]
    found = await database.read(reads.invocations_by_stream, streams)
    assert {stream: invocation.id for stream, invocation in found.items()} == {
        claim.invocation.stream_id: claim.invocation.id,
        other.stream_id: other.invocation_id,
    }
    assert await database.read(reads.invocations_by_stream, []) == {}


async def test_runs_come_in_pages_newest_activity_first(database: Database) -> None:
    moments = [3, 1, 2, 2, 2, 4]
    runs = [await accepted(database, at=AT + moment) for moment in moments]
    expected = [run.id for run in sorted(runs, key=lambda run: (run.last_activity_at, run.id), reverse=True)]
    for limit in (1, 2, 5, 10):
        assert await pages(database, reads.RunFilter(), limit) == expected


async def test_runs_are_listed_with_the_stream_of_their_newest_invocation(database: Database, claim: Claim) -> None:
    turn = new_turn(continues=claim.run.id)
    await database.write(accept_turn, turn)
    [(run, stream_id)] = await database.read(reads.runs_of, OWNER, reads.RunFilter(), before=None, limit=10)
    assert (run.id, run.invocation_id, stream_id) == (claim.run.id, turn.invocation_id, turn.stream_id)


async def test_a_list_is_narrowed_by_agent_status_and_session(database: Database, claim: Claim) -> None:
    poem = await accepted(database, agent="poet", session_id="s1", at=AT + 10)
    session = await accepted(database, session_id="s1", at=AT + 11)
    done = claim.run
    for where, expected in (
        (reads.RunFilter(), [session, poem, done]),
        (reads.RunFilter(agent="poet"), [poem]),
        (reads.RunFilter(status=RunStatus.COMPLETED), [done]),
        (reads.RunFilter(session_id="s1"), [session, poem]),
        (reads.RunFilter(agent="researcher", status="queued", session_id="s1"), [session]),
        (reads.RunFilter(status="no such status"), []),
    ):
        for limit in (1, 10):
            assert await pages(database, where, limit) == [run.id for run in expected]


ODD = 'x"y\\z \n\x1f\u2028 \u00e9 \U0001f600 %_'


BY_METADATA: list[tuple[dict[str, str], list[str]]] = [
    ({"customer": "c_1"}, ["text"]),
    ({"customer": ODD}, ["odd"]),
    ({"customer": "c_"}, []),
    ({"tries": "3"}, ["number", "number as text"]),
    ({"tries": "3.0"}, ["decimal"]),
    ({"done": "true"}, ["true"]),
    ({"done": "1"}, []),
    ({"done": "null"}, ["null"]),
    ({"nested": '{"a":1}'}, []),
    ({"nested": "[1]"}, []),
    ({"a.b c'd$[0]": "x"}, ["odd key"]),
    ({"a": "x"}, []),
    ({"": "x"}, []),
    ({"customer": "c_2", "tries": "5"}, ["both"]),
    ({"customer": "c_2", "tries": "6"}, []),
]


async def test_a_list_is_narrowed_by_metadata(database: Database) -> None:
    """A scalar at the top level, as it was stored; the same on both databases."""
    stored: dict[str, dict[str, Any]] = {
        "nothing": {},
        "text": {"customer": "c_1"},
        "odd": {"customer": ODD},
        "number": {"tries": 3},
        "number as text": {"tries": "3"},
        "decimal": {"tries": 3.0},
        "true": {"done": True},
        "null": {"done": None},
        "nested": {"nested": {"a": 1}},
        "nested list": {"nested": [1]},
        "odd key": {"a.b c'd$[0]": "x", "a": {"b c'd$": ["x"]}},
        "both": {"customer": "c_2", "tries": 5},
    }
    for title, metadata in stored.items():
        await accepted(database, title=title, metadata=metadata)
    for where, found in BY_METADATA:
        page = await database.read(reads.runs_of, OWNER, reads.RunFilter(metadata=where), before=None, limit=100)
        assert sorted(run.title or "" for run, _ in page) == sorted(found), where


async def test_a_transcript_comes_in_pages_from_either_end(database: Database, claim: Claim) -> None:
    async def page(after_seq: int | None, *, descending: bool, limit: int) -> list[int]:
        rows = await database.read(
            reads.messages_of, claim.run.id, OWNER, after_seq=after_seq, descending=descending, limit=limit
        )
        assert rows is not None
        return [row.seq for row in rows]

    assert await page(None, descending=False, limit=10) == [1, 2, 3, 4]
    assert await page(None, descending=True, limit=10) == [4, 3, 2, 1]
    assert await page(2, descending=False, limit=1) == [3]
    assert await page(3, descending=True, limit=10) == [2, 1]
    assert await page(4, descending=False, limit=10) == []


async def test_a_runs_invocations_come_in_pages_newest_first(database: Database, claim: Claim) -> None:
    second = new_turn(continues=claim.run.id, at=AT + 9)
    await database.write(accept_turn, second)

    async def page(before: tuple[int, str] | None, limit: int) -> list[Invocation]:
        found = await database.read(reads.invocations_of, claim.run.id, OWNER, before=before, limit=limit)
        assert found is not None
        run, invocations = found
        assert run.id == claim.run.id
        return invocations

    [newest] = await page(None, 1)
    assert newest.id == second.invocation_id
    rest = await page((newest.created_at, newest.id), 10)
    assert [invocation.id for invocation in rest] == [claim.invocation.id]


async def test_the_answer_that_readers_have_seen_is_in_the_rows(database: Database, claim: Claim) -> None:
    turn = new_turn(continues=claim.run.id)
    await database.write(accept_turn, turn)
    answer = await database.read(reads.committed_answer, claim.run.id, claim.invocation.id)
    assert answer == ("South of the Sahara." * 2, 6)
    assert await database.read(reads.committed_answer, claim.run.id, turn.invocation_id) == ("", 0)


async def test_a_call_knows_its_place_among_those_of_its_kind(database: Database, database_url: str) -> None:
    """In the order in which they are claimed; counted so far and no further."""
    for changes in ({"agent": "other"}, {"tenant_id": "other"}, {"queue": "other"}):
        await accepted(database, at=AT + 1000, **changes)
    runs = [await accepted(database, at=AT + number) for number in range(POSITION_MAX + 1)]
    streams = [(await run_and_invocation(database, run.id))[1].stream_id for run in runs]
    found = await database.read(queue_positions, [streams[0], streams[1], streams[-2], streams[-1], "st_none"])
    assert {stream: place.position for stream, place in found.items()} == {
        streams[0]: 1,
        streams[1]: 2,
        streams[-2]: POSITION_MAX,
        streams[-1]: POSITION_MAX,
    }
    place = found[streams[0]]
    assert (place.queue, place.agent, place.tenant_id, place.user_id) == ("default", "researcher", TENANT, USER)
    await claimed(database, registered(database_url))
    found = await database.read(queue_positions, streams)
    assert (streams[0] in found, found[streams[1]].position) == (False, 1)


async def test_a_healthy_database_can_be_written(database: Database) -> None:
    await database.read(reads.check_writable)


async def pages(database: Database, where: reads.RunFilter, limit: int) -> list[str]:
    """The ids of all pages, one after the other."""
    found: list[Run] = []
    before = None
    while True:
        page = await database.read(reads.runs_of, OWNER, where, before=before, limit=limit)
        assert len(page) <= limit
        if not page:
            return [run.id for run in found]
        found += [run for run, _ in page]
        before = (found[-1].last_activity_at, found[-1].id)
