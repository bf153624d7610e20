"""What the feed is read from: every change of a caller's runs and transcripts, complete while others commit."""

import asyncio
from typing import Any

import pytest
from tests.contract.store.holder import Holder
from tests.contract.store.states import (
    AT,
    OWNER,
    TENANT,
    TOTALS,
    accepted,
    assistant_turn,
    claimed,
    completed,
    held,
    new_turn,
    registered,
    settle,
    settled,
)
from tests.databases import POSTGRES, transaction

from runyard.clock import now_ms
from runyard.db.changes import (
    DELETIONS_KEPT_MS,
    Change,
    ChangedRun,
    Deletion,
    changes_of,
    forgotten_below,
    horizon,
)
from runyard.db.claims import give_back
from runyard.db.deaths import bury
from runyard.db.engine import Database, sync_engine
from runyard.db.inputs import retract_input
from runyard.db.records import Message
from runyard.db.retention import CLOCKS_APART_MS, Forgotten, forget_deletions
from runyard.db.scope import Scope
from runyard.db.turns import append_turn
from runyard.history import HistoryMessage
from runyard.lifecycle.accept import accept_turn
from runyard.lifecycle.cancelling import cancel_run
from runyard.lifecycle.editing import append_messages, clear_messages, describe_run, erase_run

pytestmark = pytest.mark.anyio

GUARD_S = 60
SAID = (HistoryMessage(role="user", content="hi"), HistoryMessage(role="assistant", content="hello"))


class Reader:
    """A caller who reads from where they were."""

    def __init__(self, database: Database, *scopes: Scope, since: int = 0, page: int = 200) -> None:
        self.cursor = since
        self._database = database
        self._scopes = scopes
        self._page = page

    async def look(self) -> list[Change]:
        """What there is now."""
        found: list[Change] = []
        mark = (await self._database.read(horizon)).mark
        while self.cursor < mark:
            page = await self._database.read(changes_of, self._scopes, since=self.cursor, before=mark, page=self._page)
            found += page.changes
            self.cursor = page.until
        return found

    async def news(self) -> list[Any]:
        """All that is committed by now. A server's other transactions may hold it up."""
        newest = (await self._database.read(horizon)).newest
        found = []
        async with asyncio.timeout(GUARD_S):
            while True:
                found += await self.look()
                if self.cursor >= newest:
                    return [told(change) for change in found]
                await asyncio.sleep(0.01)


def told(change: Change) -> Any:
    match change.what:
        case ChangedRun(run=run, waiting=waiting):
            return "run", run.id, str(run.status), len(waiting)
        case Message(run_id=run_id, seq=seq):
            return "message", run_id, seq
        case Deletion(run_id=run_id, whole_run=whole_run):
            return "deleted", run_id, whole_run


async def test_every_transaction_is_told(database: Database, database_url: str) -> None:
    reader = Reader(database, OWNER)
    run = (await accepted(database)).id
    assert await reader.news() == [("run", run, "queued", 1)]
    steered = await database.write(accept_turn, new_turn(continues=run, content="and storks?"))
    assert await reader.news() == [("run", run, "queued", 2)]
    await database.write(retract_input, run, OWNER, steered.input_id)
    assert await reader.news() == [("run", run, "queued", 1)]
    worker = registered(database_url)
    claim = await claimed(database, worker)
    assert await reader.news() == [("run", run, "running", 0), ("message", run, 1)]
    await database.write(append_turn, held(claim), assistant_turn(), [], TOTALS, at=AT + 2)
    assert await reader.news() == [("run", run, "running", 0), ("message", run, 2)]
    await database.write(cancel_run, run, OWNER, at=AT + 3)
    assert await reader.news() == [("run", run, "running", 0)]
    await database.write(give_back, run, claim.run.generation)
    assert await reader.news() == [("run", run, "queued", 0)]
    claim = await claimed(database, worker)
    assert await reader.news() == [("run", run, "running", 0)]
    engine = sync_engine(database_url)
    with engine.begin() as connection:
        assert bury(connection, worker, 0) is not None
    engine.dispose()
    assert await reader.news() == [("run", run, "queued", 0)]
    claim = await claimed(database, registered(database_url))
    await database.write(settle, held(claim), completed(), at=AT + 4)
    assert await reader.news() == [("run", run, "completed", 0)]
    await database.write(describe_run, run, OWNER, values={"title": "Birds"}, at=AT + 5)
    assert await reader.news() == [("run", run, "completed", 0)]
    await database.write(append_messages, run, OWNER, SAID, at=AT + 6)
    assert sorted(await reader.news()) == [("message", run, 3), ("message", run, 4), ("run", run, "completed", 0)]
    await database.write(clear_messages, run, OWNER, at=AT + 7)
    assert await reader.news() == [("deleted", run, False), ("run", run, "completed", 0)]
    await database.write(erase_run, run, OWNER, at=AT + 8)
    assert await reader.news() == [("deleted", run, True)]
    assert await reader.news() == []


async def test_what_a_cancel_of_a_failed_run_drops_is_told(database: Database, database_url: str) -> None:
    reader = Reader(database, OWNER)
    await accepted(database)
    holder = await Holder.of(database, await claimed(database, registered(database_url)))
    run = holder.claim.run.id
    await database.write(accept_turn, new_turn(continues=run, content="and storks?"))
    await holder.fails()
    assert (await reader.news())[-1] == ("run", run, "failed", 1)
    await database.write(cancel_run, run, OWNER, at=AT + 200)
    assert await reader.news() == [("run", run, "failed", 0)]


async def test_one_who_was_away_is_told_what_is_so_now(database: Database, database_url: str) -> None:
    erased, kept = [await settled(database, database_url) for _ in range(2)]
    await database.write(append_messages, kept, OWNER, SAID, at=AT + 3)
    await database.write(erase_run, erased, OWNER, at=AT + 4)
    news = await Reader(database, OWNER).news()
    assert [item for item in news if item[1] == erased] == [("deleted", erased, True)]
    assert sorted(item for item in news if item[1] == kept) == [
        *(("message", kept, seq) for seq in (1, 2, 3)),
        ("run", kept, "completed", 0),
    ]


@pytest.mark.parametrize("database_url", [POSTGRES], indirect=True)
async def test_what_is_committed_late_is_not_passed_over(database: Database, rival: Database) -> None:
    """Its mark is lower than that of what was told before it: nothing above it is told before it has ended."""
    slow, fast = [(await accepted(database)).id for _ in range(2)]
    reader = Reader(database, OWNER)
    await reader.news()
    async with transaction(rival) as first:
        await describe_run(first, slow, OWNER, values={"title": "slow"}, at=AT + 1)
        await database.write(describe_run, fast, OWNER, values={"title": "fast"}, at=AT + 2)
        assert await reader.look() == []
        await first.commit()
    assert await reader.news() == [("run", slow, "queued", 1), ("run", fast, "queued", 1)]


async def test_nothing_is_missed_while_many_commit(database: Database, rival: Database) -> None:
    """Each row of each transcript is told once, and of each run what it became."""
    runs = [(await accepted(database, user_id="ada")).id for _ in range(4)]
    for run in runs:
        await database.write(cancel_run, run, OWNER, at=AT + 1)
    reader = Reader(database, OWNER, page=3)
    await reader.news()
    seen: list[Any] = []

    async def write(through: Database, run: Any) -> None:
        for _ in range(6):
            await through.write(append_messages, run, OWNER, SAID[:1], at=AT + 2)
            await through.write(append_messages, run, OWNER, SAID[1:], at=AT + 2)

    writers = asyncio.gather(*(write(through, run) for run, through in zip(runs, (database, rival) * 2, strict=True)))
    while not writers.done():
        seen += [told(change) for change in await reader.look()]
        await asyncio.sleep(0)
    await writers
    seen += await reader.news()
    rows = [item for item in seen if item[0] == "message"]
    assert len(rows) == len(set(rows))
    assert {run: sorted(seq for _, of, seq in rows if of == run) for run in runs} == {
        run: list(range(2, 14)) for run in runs
    }
    assert {item[1] for item in seen if item[0] == "run"} == set(runs)


@pytest.mark.parametrize("page", [1, 2, 3])
async def test_pages_split_no_transaction(database: Database, page: int) -> None:
    run = (await accepted(database)).id
    await database.write(cancel_run, run, OWNER, at=AT + 1)
    await database.write(append_messages, run, OWNER, SAID * 3, at=AT + 2)
    news = await Reader(database, OWNER, page=page).news()
    assert sorted(news) == sorted([("run", run, "cancelled", 0), *(("message", run, seq) for seq in range(1, 8))])


async def test_only_ones_own_is_told(database: Database) -> None:
    mine = (await accepted(database)).id
    colleague = (await accepted(database, user_id="ben")).id
    elsewhere = (await accepted(database, tenant_id="other")).id
    for run, owner in ((mine, OWNER), (colleague, Scope.of_user(TENANT, "ben"))):
        await database.write(cancel_run, run, owner, at=AT + 1)
        await database.write(erase_run, run, owner, at=AT + 2)
    for scopes, expected in (
        ([OWNER], [mine]),
        ([Scope.of_user(TENANT, "eve"), Scope.of_user("none", "ada")], []),
        ([Scope.of_tenant(TENANT)], [mine, colleague]),
        ([OWNER, Scope.of_tenant("other")], [mine, elsewhere]),
        ([Scope(tenants=(TENANT, "other"), user_id=None)], [mine, colleague, elsewhere]),
        ([], []),
    ):
        assert {item[1] for item in await Reader(database, *scopes).news()} == set(expected)


async def test_deletions_are_forgotten_after_a_day(database: Database, database_url: str) -> None:
    """Whoever was away for longer is told so, since they may have missed one."""
    old, newer, latest = [await settled(database, database_url) for _ in range(3)]
    now, kept_ms = now_ms(), DELETIONS_KEPT_MS + CLOCKS_APART_MS
    await database.write(erase_run, old, OWNER, at=now - kept_ms - 2_000)
    after_old = Reader(database, OWNER)
    await after_old.news()
    await database.write(erase_run, newer, OWNER, at=now - kept_ms - 1_000)
    await database.write(erase_run, latest, OWNER, at=now)
    assert await database.read(forgotten_below, at=now - kept_ms - 2_000) == 0
    assert await database.write(forget_deletions) == Forgotten(rows=1, more=False)
    assert await Reader(database, OWNER).news() == [("deleted", newer, True), ("deleted", latest, True)]
    assert 0 < await database.read(forgotten_below, at=now) >= after_old.cursor
    assert await database.write(forget_deletions) == Forgotten(rows=0, more=False)
    assert await database.read(forgotten_below, at=now) >= after_old.cursor, "it is still known how far that went"
