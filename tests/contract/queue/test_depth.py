"""The depth of queues equals what SQL and the broker say: one suite on both databases and both brokers."""

import asyncio
from collections.abc import Callable
from typing import Any

import anyio
import pytest
import sqlalchemy as sa
from tests.contract.queue.listening import ListeningWorker, publishing, wake
from tests.contract.queue.queue_sides import Broker
from tests.contract.store.states import AT, accepted, claimed, completed, held, registered, settle
from tests.integration.processes import eventually

from runyard.clock import now_ms
from runyard.db.claims import give_back
from runyard.db.deaths import bury
from runyard.db.depth import read_beats
from runyard.db.engine import Database, sync_engine
from runyard.db.limits import NO_LIMITS, Limits
from runyard.db.workers import beat
from runyard.depth.pulse import Pulse
from runyard.depth.queues import QueuedClass, QueueDepth, QueueWorkers, Unserved, look
from runyard.errors import StoreUnavailable
from runyard.ids import WorkerId
from runyard.priorities import Priority
from runyard.queue.depth import BrokerDepth, Messages
from runyard_gateway.depth import Depths

pytestmark = [pytest.mark.anyio, pytest.mark.services, pytest.mark.usefixtures("impatient")]

NOBODY = QueueWorkers(living=0, draining=0, slots=0)
GUARD_S = 30.0
MANIFEST = {"researcher": ("v1", {"queue": "default"})}


async def depth_of(
    database: Database, broker: Broker, queue: str = "default", *, tenants: tuple[str, ...] | None = None
) -> QueueDepth:
    """Once the broker has answered: on a starved machine it takes longer than the second that it is given."""
    with anyio.fail_after(GUARD_S):
        while True:
            depth = await look(database, BrokerDepth(broker.url, prefix=broker.prefix), lives=lambda _: True)
            if depth.broker_error is None:
                break
    (found,) = [one for one in (depth.of_all() if tenants is None else depth.of_tenants(tenants)) if one.queue == queue]
    return found


async def counted(database: Database, queue: str = "default") -> dict[str, int]:
    statement = sa.text("SELECT status, count(*) AS runs FROM agent_runs WHERE queue = :queue GROUP BY status")

    async def read(connection: sa.ext.asyncio.AsyncConnection) -> dict[str, int]:
        return {row.status: row.runs for row in await connection.execute(statement, {"queue": queue})}

    return await database.read(read)


async def test_runs_are_counted_as_they_go_through_their_life(
    database: Database, database_url: str, broker: Broker
) -> None:
    worker = registered(database_url, manifests=MANIFEST, slots=3)
    workers = QueueWorkers(living=1, draining=0, slots=3)
    idle = await depth_of(database, broker)
    assert idle == QueueDepth(
        queue="default",
        messages=Messages(ready=0, delayed=0, dead=0),
        priorities=(
            QueuedClass(priority=Priority.INTERACTIVE, queued=0, oldest_ms=None, oldest_claimable_ms=None),
            QueuedClass(priority=Priority.BACKGROUND, queued=0, oldest_ms=None, oldest_claimable_ms=None),
        ),
        running=0,
        waiting=0,
        workers=workers,
        unserved=(),
    )
    for tenant in ("acme", "acme", "initech"):
        await accepted(database, tenant_id=tenant)
    first = await claimed(database, worker)
    found = await depth_of(database, broker)
    assert (found.queued, found.running, found.waiting) == (2, 1, 0)
    assert await counted(database) == {"queued": 2, "running": 1}
    assert found.workers == workers
    await database.write(settle, held(first), completed(), at=AT + 5)
    found = await depth_of(database, broker)
    assert (found.queued, found.running) == (2, 0)
    await claimed(database, worker)
    await claimed(database, worker)
    found = await depth_of(database, broker)
    assert (found.queued, found.running, found.oldest_queued_ms) == (0, 2, None)


async def test_a_caller_is_shown_the_runs_of_their_tenants(database: Database, broker: Broker) -> None:
    for tenant, runs in (("acme", 3), ("initech", 2), ("globex", 1)):
        for _ in range(runs):
            await accepted(database, tenant_id=tenant, at=AT if tenant == "globex" else now_ms())
    shown = {
        tenants: await depth_of(database, broker, tenants=tenants)
        for tenants in (("acme",), ("acme", "initech"), ("nobody",))
    }
    assert [depth.queued for depth in shown.values()] == [3, 5, 0]
    assert [depth.unserved for depth in shown.values()] == [
        (Unserved(agent="researcher", queued=3),),
        (Unserved(agent="researcher", queued=5),),
        (),
    ]
    everybodys = await depth_of(database, broker)
    assert everybodys.queued == 6
    oldest = everybodys.oldest_queued_ms
    assert oldest is not None
    assert all((depth.oldest_queued_ms or 0) < oldest for depth in shown.values())


@pytest.mark.parametrize(
    ("limits", "ages_s"),
    [
        (NO_LIMITS, 400),
        (Limits(per_user=1), 300),
        (Limits(per_tenant=1), 200),
        (Limits(per_agent={"researcher": 1}), 100),
        (Limits(per_agent={"researcher": 1, "writer": 0}), None),
        (Limits(per_user=2, per_tenant=2, per_agent={"researcher": 2}), 400),
    ],
    ids=["none", "user", "tenant", "agent", "agents", "not full"],
)
async def test_what_waits_for_a_limit_waits_for_no_slot(
    database: Database, database_url: str, broker: Broker, limits: Limits, ages_s: int | None
) -> None:
    """Behind one run of ada's: hers, another user's of her tenant, another tenant's, another agent's."""
    worker, now = registered(database_url), now_ms()
    await accepted(database, at=now - 500_000)
    await claimed(database, worker)
    others: list[dict[str, str]] = [{}, {"user_id": "bob"}, {"tenant_id": "initech"}]
    for age_s, other in zip((400, 300, 200), others, strict=True):
        await accepted(database, at=now - 1000 * age_s, **other)
    await accepted(database, at=now - 100_000, tenant_id="initech", agent="writer")
    depth = await look(database, BrokerDepth(broker.url, prefix=broker.prefix), lives=lambda _: True, limits=limits)
    (interactive, _) = depth.of_all()[0].priorities
    assert interactive.oldest_ms is not None
    assert interactive.oldest_ms // 100_000 == 4
    claimable = interactive.oldest_claimable_ms
    assert (None if claimable is None else claimable // 100_000 * 100) == ages_s


async def test_waiting_runs_are_counted(database: Database, broker: Broker) -> None:
    run = await accepted(database)

    async def park(connection: sa.ext.asyncio.AsyncConnection) -> None:
        await connection.execute(sa.text("UPDATE agent_runs SET status = 'waiting' WHERE id = :run"), {"run": run.id})

    await database.write(park)
    found = await depth_of(database, broker)
    assert (found.queued, found.running, found.waiting, found.oldest_queued_ms) == (0, 0, 1, None)


async def test_the_oldest_is_the_one_that_has_waited_longest_this_time(
    database: Database, database_url: str, broker: Broker
) -> None:
    """A run of hours that was given back a moment ago has waited for a moment."""
    worker = registered(database_url)
    await accepted(database)  # an old one: AT is long ago
    first = await claimed(database, worker)
    before = now_ms()
    await database.write(give_back, first.run.id, first.run.generation)
    age = (await depth_of(database, broker)).oldest_queued_ms
    assert age is not None
    assert age <= now_ms() - before
    again = await claimed(database, worker)
    engine = sync_engine(database_url)
    before = now_ms()
    with engine.begin() as connection:
        assert bury(connection, worker, 0) is not None
    engine.dispose()
    age = (await depth_of(database, broker)).oldest_queued_ms
    assert age is not None
    assert age <= now_ms() - before
    assert again.run.id == first.run.id
    await accepted(database, at=before - 60_000)
    found = await depth_of(database, broker)
    assert found.queued == 2
    assert found.oldest_queued_ms is not None
    assert 60_000 <= found.oldest_queued_ms <= 60_000 + now_ms() - before


async def test_a_background_call_has_waited_since_it_was_accepted(
    database: Database, database_url: str, broker: Broker
) -> None:
    """Its place in the queue is that of a later call."""
    worker = registered(database_url)
    before = now_ms()
    await accepted(database, at=before - 20_000)
    for age_ms in (60_000, 30_000):
        await accepted(database, at=before - age_ms, priority=Priority.BACKGROUND)
    found = await depth_of(database, broker)
    interactive, background = found.priorities
    assert (interactive.queued, background.queued, found.queued) == (1, 2, 3)
    assert interactive.oldest_ms is not None
    assert background.oldest_ms is not None
    late_ms = now_ms() - before
    assert 20_000 <= interactive.oldest_ms <= 20_000 + late_ms
    assert 60_000 <= background.oldest_ms <= 60_000 + late_ms
    assert found.oldest_queued_ms == background.oldest_ms
    assert (await claimed(database, worker)).run.priority is Priority.INTERACTIVE
    given = await claimed(database, worker)
    await database.write(give_back, given.run.id, given.run.generation)
    interactive, background = (await depth_of(database, broker)).priorities
    assert (interactive.queued, interactive.oldest_ms, background.queued) == (0, None, 2)
    assert background.oldest_ms is not None
    assert 30_000 <= background.oldest_ms <= 30_000 + now_ms() - before, "the other one waits anew"


async def test_agents_that_no_living_worker_of_their_queue_has(
    database: Database, database_url: str, broker: Broker
) -> None:
    other = registered(database_url, manifests=MANIFEST, queues=("bulk",))
    for agent in ("researcher", "researcher", "writer"):
        await accepted(database, agent=agent)
    both = (Unserved(agent="researcher", queued=2), Unserved(agent="writer", queued=1))
    found = await depth_of(database, broker)
    assert (found.unserved, found.workers) == (both, NOBODY)
    assert (await depth_of(database, broker, "bulk")).workers == QueueWorkers(living=1, draining=0, slots=4)
    worker = registered(database_url, manifests=MANIFEST)
    assert (await depth_of(database, broker)).unserved == (Unserved(agent="writer", queued=1),)
    engine = sync_engine(database_url)
    with engine.begin() as connection:
        beat(connection, worker, draining=True)
        beat(connection, other)
    engine.dispose()
    found = await depth_of(database, broker)
    assert (found.unserved, found.workers) == (both, QueueWorkers(living=1, draining=1, slots=0))


async def test_a_worker_whose_beat_stands_still_is_not_counted(
    database: Database, database_url: str, broker: Broker
) -> None:
    dead, living = (registered(database_url, manifests=MANIFEST) for _ in range(2))
    now = 100.0
    pulse = Pulse(clock=lambda: now)
    engine = sync_engine(database_url)
    for _ in range(5):
        with engine.begin() as connection:
            beat(connection, living)
        pulse.see(await database.read(read_beats))
        assert pulse.lives(dead)
        now += 1.99
    engine.dispose()
    now += 0.1
    depth = await look(database, BrokerDepth(broker.url, prefix=broker.prefix), lives=pulse.lives)
    assert [one.workers for one in depth.of_all()] == [QueueWorkers(living=1, draining=0, slots=4)]
    assert pulse.is_certain()


def test_a_watcher_that_did_not_look_judges_nobody() -> None:
    now = 100.0
    pulse = Pulse(clock=lambda: now)
    worker = WorkerId("wk_1")
    assert pulse.lives(worker)
    pulse.see({worker: 1})
    assert not pulse.is_certain()
    now += 60
    pulse.see({worker: 1})
    assert pulse.lives(worker)
    now += 2
    pulse.see({worker: 2})
    assert pulse.is_certain()


async def test_messages_are_counted_while_they_are_ready_held_dead_and_purged(
    database: Database, broker: Broker
) -> None:
    await accepted(database)
    async with publishing(broker.url, broker.prefix) as publisher:
        wake(publisher, 5)
    assert broker.side.ready() == 5
    assert (await depth_of(database, broker)).messages == Messages(ready=5, delayed=0, dead=0)
    worker = ListeningWorker(broker.url, broker.prefix, slots=2)
    try:
        await worker.has_woken(2)
        await worker.has_looked_in_vain()
        assert (await depth_of(database, broker)).messages == Messages(ready=3, delayed=0, dead=0)
        broker.side.put(b"no message")
        for _ in range(4):
            worker.finish_run()
        await eventually(lambda: broker.side.dead() == 1, "dead letter")
        await eventually(lambda: broker.side.ready() == 0, "empty queue")
    finally:
        worker.slots.close()
        worker.consumption.stop()
    found = await depth_of(database, broker)
    assert found.messages == Messages(ready=0, delayed=0, dead=1)
    assert found.queued == 1  # without its message, and told nevertheless
    async with publishing(broker.url, broker.prefix) as publisher:
        wake(publisher, 3)
    assert broker.side.take_all() == 3
    assert (await depth_of(database, broker)).queued == 1


@pytest.mark.parametrize("trouble", ["refuse", "fall_silent"])
async def test_what_a_broker_does_not_tell_is_not_made_up(database: Database, broker: Broker, trouble: str) -> None:
    await accepted(database)
    messages = BrokerDepth(broker.url, prefix=broker.prefix)
    assert (await look(database, messages, lives=lambda _: True)).broker_error is None
    getattr(broker.relay, trouble)()
    for _ in range(2):
        depth = await look(database, messages, lives=lambda _: True)
        (found,) = depth.of_all()
        assert (found.messages, found.queued) == (None, 1)
        assert depth.broker_error is not None
        assert depth.broker_error.startswith("the broker ")
        shown = depth.to_dict([found])
        assert (shown["items"][0]["ready"], shown["items"][0]["queued"]) == (None, 1)
    broker.relay.recover()

    async def told() -> bool:
        return (await look(database, messages, lives=lambda _: True)).broker_error is None

    while not await told():
        pass  # the test's own time limit ends it


async def test_a_queue_is_listed_while_anything_of_it_is_known(
    database: Database, database_url: str, broker: Broker
) -> None:
    registered(database_url, manifests={"writer": ("v1", {"queue": "elsewhere"})}, queues=("bulk",))
    await accepted(database)
    depth = await look(database, BrokerDepth(broker.url, prefix=broker.prefix), lives=lambda _: True)
    assert depth.queues == ["bulk", "default", "elsewhere"]


class CountingDatabase:
    """Hands readings on and counts them; the first waits for `gate`."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.looks = 0
        self.gate = asyncio.Event()
        self.away = False

    async def snapshot(self, *args: Any, **kwargs: Any) -> Any:
        self.looks += 1
        await self.gate.wait()
        if self.away:
            raise StoreUnavailable("the database does not answer")
        return await self._database.snapshot(*args, **kwargs)


def depths_of(database: Any, broker: Broker, *, clock: Callable[[], float]) -> Depths:
    async def limits() -> Limits:
        return NO_LIMITS

    messages = BrokerDepth(broker.url, prefix=broker.prefix)
    return Depths(database, messages, lives=lambda _: True, limits=limits, clock=clock)


async def test_a_gateway_looks_once_a_second_for_all_who_ask(database: Database, broker: Broker) -> None:
    now = 100.0
    counting = CountingDatabase(database)
    depths = depths_of(counting, broker, clock=lambda: now)
    async with asyncio.TaskGroup() as tasks:
        asking = [tasks.create_task(depths.now()) for _ in range(20)]
        leaves = tasks.create_task(depths.now())
        await asyncio.sleep(0)
        leaves.cancel()  # one who does not wait takes nothing from the others
        await accepted(database)
        counting.gate.set()
    first = await depths.now()
    assert {id(await task) for task in asking} == {id(first)}
    assert counting.looks == 1
    await accepted(database)
    assert [queue.queued for queue in (await depths.now()).of_all()] == [1]
    now += 1
    assert [queue.queued for queue in (await depths.now()).of_all()] == [2]
    assert counting.looks == 2


async def test_a_gateway_tells_no_old_number_when_the_database_is_away(database: Database, broker: Broker) -> None:
    now = 100.0
    counting = CountingDatabase(database)
    counting.gate.set()
    depths = depths_of(counting, broker, clock=lambda: now)
    await depths.now()
    now += 1
    counting.away = True
    for _ in range(2):
        with pytest.raises(StoreUnavailable):
            await depths.now()
    counting.away = False
    assert (await depths.now()).of_all() == []
    assert counting.looks == 4
