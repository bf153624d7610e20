"""Links that end with messages in flight: nothing is acknowledged that was not claimed, and everything comes."""

import pytest
import structlog
from tests.contract.queue.listening import Gate, listening, opening, sent
from tests.contract.queue.queue_sides import Broker, on_rabbitmq, on_redis
from tests.integration.processes import eventually

from runyard.queue.redis_broker import WakingRedisBroker

pytestmark = [pytest.mark.anyio, pytest.mark.services, pytest.mark.usefixtures("impatient")]


async def test_every_message_comes_though_links_are_cut(broker: Broker) -> None:
    async with listening(broker.url, broker.prefix, slots=200) as worker:
        for number in range(1, 6):
            await sent(broker.url, broker.prefix, 10)
            await worker.has_woken(number)
            broker.relay.cut()
        await eventually(broker.side.is_empty, "empty queue")
        assert worker.woken >= 50


async def test_a_message_in_flight_when_its_link_is_cut_is_settled_once_it_was_claimed(broker: Broker) -> None:
    """On RabbitMQ it comes again, to be claimed again: a claim that finds nothing is no fault."""
    with opening(Gate()) as gate:
        async with listening(broker.url, broker.prefix, slots=4, claim=gate.hold) as worker:
            await sent(broker.url, broker.prefix)
            await worker.has_woken(1)
            broker.relay.cut()
            if broker.name == "rabbitmq":
                await worker.has_woken(2)
                gate.let_one_pass()
            gate.let_one_pass()
            await eventually(broker.side.is_empty, "empty queue")
            await sent(broker.url, broker.prefix)
            gate.let_one_pass()
            await eventually(broker.side.is_empty, "empty queue")


@on_rabbitmq
async def test_an_acknowledgement_from_before_a_reconnect_acknowledges_no_other_message(broker: Broker) -> None:
    """Delivery tags begin at 1 again: the old message's tag is the new one's."""
    with opening(Gate()) as gate, structlog.testing.capture_logs() as logged:
        async with listening(broker.url, broker.prefix, slots=4, claim=gate.hold) as worker:
            await sent(broker.url, broker.prefix)
            await worker.has_woken(1)
            broker.relay.cut()
            await worker.has_woken(2)  # the same message, on a new link, with the same tag
            gate.let_one_pass()
            await eventually(
                lambda: [event for event in logged if event["event"].startswith("acknowledgement dropped")],
                "the old acknowledgement",
            )
            broker.relay.cut()
            await worker.has_woken(3)  # it was not acknowledged
            for _ in range(2):
                gate.let_one_pass()
            await eventually(broker.side.is_empty, "empty queue")


async def test_a_worker_goes_on_after_an_outage(broker: Broker) -> None:
    async with listening(broker.url, broker.prefix, slots=20) as worker:
        await sent(broker.url, broker.prefix)
        await worker.has_woken(1)
        broker.relay.refuse()
        with structlog.testing.capture_logs():  # of the sender, which is refused
            await sent(broker.url, broker.prefix)
        broker.relay.recover()
        await sent(broker.url, broker.prefix, 5)
        await worker.has_woken(6)
        await eventually(broker.side.is_empty, "empty queue")


async def test_a_worker_that_starts_during_an_outage_works_after_it(broker: Broker) -> None:
    broker.relay.refuse()
    async with listening(broker.url, broker.prefix, slots=2) as worker:
        broker.relay.recover()
        await sent(broker.url, broker.prefix)
        await worker.has_woken(1)


async def test_a_queue_that_was_deleted_is_declared_again(broker: Broker) -> None:
    async with listening(broker.url, broker.prefix, slots=20) as worker:
        await sent(broker.url, broker.prefix)
        await worker.has_woken(1)
        broker.side.delete()
        await sent(broker.url, broker.prefix, 5)
        await worker.has_woken(6)
        await eventually(broker.side.is_empty, "empty queue")


@on_rabbitmq
async def test_a_worker_declares_the_queue_again_by_itself(broker: Broker) -> None:
    """Before anybody sends to it: what a `put` of the test's needs is there."""
    async with listening(broker.url, broker.prefix, slots=20) as worker:
        await sent(broker.url, broker.prefix)
        await worker.has_woken(1)
        broker.side.delete()
        await eventually(broker.side.exists, "the queue")


@pytest.mark.parametrize("outage", ["refuse", "fall_silent"])
async def test_a_worker_can_stop_while_the_broker_is_away(
    broker: Broker, outage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("runyard.queue.consumption.STOP_TIMEOUT_S", 0.5)
    with opening(Gate()) as gate:
        async with listening(broker.url, broker.prefix, slots=9, claim=gate.hold) as worker:
            await sent(broker.url, broker.prefix, 9)
            await worker.has_woken(1)
            getattr(broker.relay, outage)()
            gate.let_one_pass()
            await worker.stop()
            broker.relay.recover()
            for _ in range(9):
                gate.let_one_pass()
            await eventually(worker.threads_have_ended, "the end of the threads that were left behind")


@on_redis
async def test_a_message_whose_way_to_the_worker_was_cut_goes_back(broker: Broker) -> None:
    """The script booked it as fetched, the answer was lost: nobody has it, and nobody else may take it."""
    async with listening(broker.url, broker.prefix, slots=20) as worker:
        assert isinstance(worker.broker, WakingRedisBroker)
        worker.slots.close()
        await worker.has_looked_in_vain()  # a look that was under way is over
        await sent(broker.url, broker.prefix, 2)
        assert len(worker.broker.do_fetch(broker.side.name, 2)) == 2
        worker.slots.open()
        await worker.has_woken(2)
        await eventually(broker.side.is_empty, "empty queue")


@on_redis
async def test_a_message_that_is_being_claimed_is_no_stray(broker: Broker) -> None:
    with opening(Gate()) as gate:
        async with listening(broker.url, broker.prefix, slots=20, claim=gate.hold) as worker:
            await sent(broker.url, broker.prefix, 3)
            await worker.has_woken(3)
            assert isinstance(worker.broker, WakingRedisBroker)
            worker.broker.settle_strays(broker.side.name)
            assert (broker.side.ready(), len(worker.broker.in_hand)) == (0, 3)
            for _ in range(3):
                gate.let_one_pass()
            await eventually(broker.side.is_empty, "empty queue")
            await eventually(lambda: worker.broker.in_hand == set(), "nothing in hand")
            assert worker.woken == 3
