"""Messages come into free slots, and only there: one suite on Redis and on RabbitMQ."""

import json
from typing import Any

import dramatiq
import pytest
from tests.contract.queue.listening import ListeningWorker, listening, publishing, sent, wake
from tests.contract.queue.queue_sides import QUEUES, Broker, RedisSide, on_redis, second
from tests.integration.processes import GUARD_S, eventually

from runyard.queue.consumption import THREADS
from runyard.queue.wakeups import ACTOR

pytestmark = [pytest.mark.anyio, pytest.mark.services, pytest.mark.usefixtures("impatient")]


def a_message(broker: Broker, **fields: Any) -> bytes:
    """What anybody may have put into the queue. dramatiq's Redis broker wants to find an id of its own in it."""
    message = dramatiq.Message(
        queue_name=broker.side.name,
        actor_name=ACTOR,
        args=(),
        kwargs={},
        options={"redis_message_id": "$ID"},
    ).asdict()
    return json.dumps({**message, **fields}).encode()


async def settled(broker: Broker, *, ready: int = 0, dead: int = 0) -> None:
    """So many messages are ready, so many dead, and none is anywhere else."""

    def found() -> bool:
        side = broker.side
        held = side.held() if isinstance(side, RedisSide) else 0
        return (side.ready(), held, side.dead()) == (ready, 0, dead)

    await eventually(found, f"{ready} messages ready and {dead} dead")


async def test_a_message_comes_into_a_slot_that_is_reserved_for_it(broker: Broker) -> None:
    async with listening(broker.url, broker.prefix, slots=3) as worker:
        await sent(broker.url, broker.prefix)
        await worker.has_woken(1)
        await worker.has_free_slots(2)
        await settled(broker)


async def test_messages_that_were_there_before_the_worker_come_too(broker: Broker) -> None:
    await sent(broker.url, broker.prefix, 3)
    async with listening(broker.url, broker.prefix, slots=5) as worker:
        await worker.has_woken(3)
        await worker.has_free_slots(2)
        await settled(broker)


async def test_with_all_slots_taken_every_message_is_ready_and_none_is_held(broker: Broker) -> None:
    async with listening(broker.url, broker.prefix, slots=2) as worker:
        await sent(broker.url, broker.prefix, 7)
        await worker.has_woken(2)
        await worker.has_looked_in_vain()
        await settled(broker, ready=5)
        assert worker.woken == 2
        worker.finish_run()
        await worker.has_woken(3)
        await worker.has_looked_in_vain()
        await settled(broker, ready=4)
        assert broker.side.take_all() == 4, "another consumer gets each of them"


async def test_a_slot_that_is_taken_without_a_message_holds_none_back(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker claims without messages too: what comes to its idle consumer finds the slot gone, and goes back."""
    monkeypatch.setattr("runyard.queue.consumption.IDLE_TIMEOUT_MS", 1500)
    async with listening(broker.url, broker.prefix, slots=2) as worker:
        await sent(broker.url, broker.prefix)
        await worker.has_woken(1)
        await settled(broker)
        assert worker.slots.reserve(GUARD_S)
        await sent(broker.url, broker.prefix, 2)
        await worker.has_looked_in_vain()
        await settled(broker, ready=2)
        assert broker.side.take_all() == 2
        assert worker.woken == 1


async def test_a_worker_that_drains_fetches_nothing_and_holds_nothing_back(broker: Broker) -> None:
    async with listening(broker.url, broker.prefix, slots=5) as leaving:
        await sent(broker.url, broker.prefix)
        await leaving.has_woken(1)
        leaving.slots.close()
        await leaving.has_looked_in_vain()  # a look that was under way is over
        await sent(broker.url, broker.prefix, 3)
        await leaving.has_looked_in_vain()
        async with listening(broker.url, broker.prefix, slots=5) as staying:
            await staying.has_woken(3)
        await settled(broker)
        assert leaving.woken == 1


async def test_what_waits_for_a_claim_when_the_worker_stops_is_claimed_or_goes_back(broker: Broker) -> None:
    async with listening(broker.url, broker.prefix, slots=50) as leaving:
        await sent(broker.url, broker.prefix, 20)
        await leaving.has_woken(1)
        await leaving.stop()
        await settled(broker, ready=20 - leaving.woken)


async def test_two_workers_fill_their_slots(broker: Broker) -> None:
    async with (
        listening(broker.url, broker.prefix, slots=2) as one,
        listening(broker.url, broker.prefix, slots=3) as other,
    ):
        await sent(broker.url, broker.prefix, 6)
        await one.has_woken(2)
        await other.has_woken(3)
        await one.has_looked_in_vain()
        await other.has_looked_in_vain()
        await settled(broker, ready=1)
        assert (one.woken, other.woken) == (2, 3)


async def test_an_idle_worker_gets_what_a_busy_one_cannot_take(broker: Broker) -> None:
    async with listening(broker.url, broker.prefix, slots=1) as busy:
        await sent(broker.url, broker.prefix)
        await busy.has_woken(1)
        async with listening(broker.url, broker.prefix, slots=4) as idle:
            async with publishing(broker.url, broker.prefix) as publisher:
                for number in range(1, 5):
                    wake(publisher)
                    await idle.has_woken(number)
            assert busy.woken == 1


async def test_a_worker_consumes_each_of_its_queues_and_no_other(broker: Broker) -> None:
    async with listening(broker.url, broker.prefix, slots=5, queues=("default", "bulk")) as worker:
        for queue in QUEUES:
            await sent(broker.url, broker.prefix, queue=queue)
        await worker.has_woken(2)
        await settled(broker)
        await worker.has_free_slots(3)


async def test_prefixes_keep_systems_apart(broker: Broker) -> None:
    async with (
        listening(broker.url, broker.prefix) as ours,
        listening(broker.url, second(broker.prefix)) as theirs,
    ):
        await sent(broker.url, broker.prefix)
        await ours.has_woken(1)
        await sent(broker.url, second(broker.prefix))
        await theirs.has_woken(1)
        assert ours.woken == 1


async def test_nobody_consumes_delayed_messages(broker: Broker) -> None:
    async with listening(broker.url, broker.prefix, queues=("default", "bulk")) as worker:
        consumed = set(worker.consumption._worker.consumers)
        assert consumed == {f"{broker.prefix}.default", f"{broker.prefix}.bulk"}


async def test_a_message_for_an_unknown_actor_is_dead_lettered_and_costs_no_slot(broker: Broker) -> None:
    async with listening(broker.url, broker.prefix, slots=2) as worker:
        await sent(broker.url, broker.prefix)
        await worker.has_woken(1)
        broker.side.put(a_message(broker, actor_name="stranger"))
        await settled(broker, dead=1)
        await worker.has_free_slots(1)
        await _still_works(broker, worker)


@pytest.mark.parametrize(
    "body",
    [b"\xff\xfe", b"no JSON", b"[]", b"{}", b'"text"'],
    ids=["not UTF-8", "not JSON", "list", "no fields", "text"],
)
async def test_an_unreadable_message_is_dead_lettered_and_costs_no_slot(broker: Broker, body: bytes) -> None:
    async with listening(broker.url, broker.prefix, slots=2) as worker:
        await sent(broker.url, broker.prefix)
        await worker.has_woken(1)
        broker.side.put(body)
        await settled(broker, dead=1)
        await worker.has_free_slots(1)
        await _still_works(broker, worker)


async def _still_works(broker: Broker, worker: ListeningWorker) -> None:
    woken = worker.woken
    await sent(broker.url, broker.prefix)
    await worker.has_woken(woken + 1)


@pytest.mark.parametrize(
    "fields",
    [
        {"queue_name": "another.queue"},
        {"args": [1, 2]},
        {"kwargs": {"unheard": "of"}},
        {"options": {"redis_message_id": "$ID", "eta": 4_102_444_800_000}},
    ],
    ids=["names another queue", "arguments", "unknown fields", "delayed"],
)
async def test_whatever_a_wake_up_says_it_is_one(broker: Broker, fields: dict[str, Any]) -> None:
    """As many as would end each of dramatiq's threads, were it taken at its word."""
    async with listening(broker.url, broker.prefix, slots=THREADS + 2) as worker:
        await sent(broker.url, broker.prefix)
        await worker.has_woken(1)
        for _ in range(THREADS):
            broker.side.put(a_message(broker, **fields))
        await worker.has_woken(1 + THREADS)
        await settled(broker)
        await _still_works(broker, worker)


async def test_a_wake_up_that_raises_is_dead_lettered_and_its_slot_stays_with_whom_it_was_given(
    broker: Broker,
) -> None:
    def fail() -> None:
        raise RuntimeError("the claim broke")

    async with listening(broker.url, broker.prefix, slots=3, claim=fail) as worker:
        await sent(broker.url, broker.prefix, 2)
        await worker.has_woken(2)
        await settled(broker, dead=2)
        await worker.has_free_slots(1)


@on_redis
async def test_a_message_whose_publish_was_lost_comes_with_the_next_look(broker: Broker) -> None:
    async with listening(broker.url, broker.prefix, slots=2) as worker:
        await sent(broker.url, broker.prefix)
        await worker.has_woken(1)
        broker.side.put(a_message(broker))
        await worker.has_woken(2)
