"""Workers' rows: who lives, what they serve, and which runs they hold."""

import contextlib
import time
from collections.abc import Iterator

import pytest
import sqlalchemy as sa
from tests.contract.store.states import AT, accepted, claimed, registered, registration_of

from runyard.clock import now_ms
from runyard.db import reads
from runyard.db.claims import give_back
from runyard.db.engine import Database, sync_engine
from runyard.db.tables import workers
from runyard.db.workers import OwnRun, Registration, beat, register, unregister
from runyard.errors import WorkerGone
from runyard.ids import new_worker_id

pytestmark = pytest.mark.anyio

DAY_MS = 24 * 3600 * 1000


@pytest.fixture
def engine(database_url: str) -> Iterator[sa.Engine]:
    """The beat's own link, as its thread has it."""
    engine = sync_engine(database_url, statement_timeout_ms=2_000)
    yield engine
    engine.dispose()


def manifests(**versions: str) -> dict[str, tuple[str, dict[str, object]]]:
    return {agent: (version, {"name": agent, "version": version}) for agent, version in versions.items()}


async def test_a_worker_whose_clock_is_wrong_is_seen_now(
    database: Database, engine: sa.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(time, "time_ns", lambda: 0)
        with engine.begin() as connection:
            register(connection, registration_of(manifests=manifests(researcher="v1")))
    seen, _ = await database.read(reads.agents_known, seen_since=now_ms() - DAY_MS)
    assert [(manifest.agent, manifest.version) for manifest in seen] == [("researcher", "v1")]
    assert seen[0].first_seen <= now_ms() + DAY_MS


def test_a_beat_rises_by_one(database_url: str, engine: sa.Engine) -> None:
    worker, other = registered(database_url), registered(database_url)
    for _ in range(3):
        with engine.begin() as connection:
            assert beat(connection, worker) == []
    with engine.begin() as connection:
        rows = connection.execute(sa.select(workers.c.id, workers.c.beat))
        assert {row.id: row.beat for row in rows} == {worker: 3, other: 0}


async def test_a_beat_tells_which_runs_the_worker_holds(
    database: Database, database_url: str, engine: sa.Engine
) -> None:
    worker, other = registered(database_url), registered(database_url)
    for number in range(3):
        await accepted(database, at=AT + number)
    mine = [await claimed(database, worker) for _ in range(2)]
    await claimed(database, other)
    with engine.begin() as connection:
        assert {(run.id, run.generation) for run in beat(connection, worker)} == {
            (claim.run.id, claim.run.generation) for claim in mine
        }
    await database.write(give_back, mine[0].run.id, mine[0].run.generation)
    with engine.begin() as connection:
        assert beat(connection, worker) == [OwnRun(id=mine[1].run.id, generation=1, cancel_requested=False)]


def test_a_worker_whose_row_is_gone_cannot_beat(database_url: str, engine: sa.Engine) -> None:
    worker = registered(database_url)
    with engine.begin() as connection:
        unregister(connection, worker)
    with pytest.raises(WorkerGone), engine.begin() as connection:
        beat(connection, worker)
    with pytest.raises(WorkerGone), engine.begin() as connection:
        beat(connection, new_worker_id())


async def test_a_worker_that_holds_a_run_cannot_leave(database: Database, database_url: str, engine: sa.Engine) -> None:
    worker = registered(database_url)
    await accepted(database)
    claim = await claimed(database, worker)
    with pytest.raises(sa.exc.IntegrityError), engine.begin() as connection:
        unregister(connection, worker)
    await database.write(give_back, claim.run.id, claim.run.generation)
    with engine.begin() as connection:
        unregister(connection, worker)


async def test_agents_are_known_by_their_manifests(database: Database, database_url: str) -> None:
    began = now_ms()
    worker = registered(database_url, manifests=manifests(researcher="v1", poet="p1"))
    first, living = await database.read(reads.agents_known, seen_since=began)
    assert living == {worker: {"researcher": "v1", "poet": "p1"}}
    assert [(item.agent, item.version) for item in first] == [("poet", "p1"), ("researcher", "v1")]
    registered(database_url, manifests=manifests(researcher="v1"))
    registered(database_url, manifests=manifests(researcher="v2"))
    known, living = await database.read(reads.agents_known, seen_since=began)
    assert len(living) == 3
    assert {(item.agent, item.version) for item in known} == {
        ("poet", "p1"),
        ("researcher", "v1"),
        ("researcher", "v2"),
    }
    before, after = by_version(first), by_version(known)
    assert after["v1"].first_seen == before["v1"].first_seen
    assert after["v1"].last_seen >= before["v1"].last_seen
    assert after["v2"].manifest == {"name": "researcher", "version": "v2"}
    newest, _ = await database.read(reads.agents_known, seen_since=now_ms() + 1)
    assert newest == []


async def test_a_worker_that_left_no_longer_serves(database: Database, database_url: str, engine: sa.Engine) -> None:
    worker = registered(database_url, manifests=manifests(researcher="v1"))
    with engine.begin() as connection:
        unregister(connection, worker)
    known, living = await database.read(reads.agents_known, seen_since=0)
    assert [item.agent for item in known] == ["researcher"]
    assert living == {}


def test_an_id_registers_once(database_url: str, engine: sa.Engine) -> None:
    again = Registration(
        worker_id=registered(database_url), host="h", slots=1, queues=(), manifests=manifests(researcher="v9")
    )
    with pytest.raises(sa.exc.IntegrityError), engine.begin() as connection:
        register(connection, again)
    with engine.begin() as connection:
        assert connection.execute(sa.select(workers.c.host)).scalars().all() == ["host-1"]


def test_the_beats_link_gives_up_soon(database_url: str) -> None:
    """The beat must find out within its own time that the database is stuck."""
    holder, waiter = sync_engine(database_url), sync_engine(database_url, statement_timeout_ms=50)
    worker = registered(database_url)
    with contextlib.closing(holder.connect()) as connection:
        beat(connection, worker)  # its row stays locked until the end
        with pytest.raises(sa.exc.OperationalError), waiter.begin() as blocked:
            beat(blocked, worker)
    holder.dispose()
    waiter.dispose()


def by_version(known: list[reads.Manifest]) -> dict[str, reads.Manifest]:
    return {item.version: item for item in known}
