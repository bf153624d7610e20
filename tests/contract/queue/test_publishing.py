"""Wake-ups are sent without anybody waiting for the broker, whatever it does: one suite on Redis and on RabbitMQ."""

import asyncio
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest
import structlog
from structlog.typing import EventDict
from tests.contract.queue.listening import listening, publishing, sent, wake
from tests.contract.queue.queue_sides import Broker, on_rabbitmq
from tests.integration.processes import GUARD_S, eventually

from runyard.queue import broker as brokers
from runyard.queue import wakeups
from runyard.queue.rabbit_broker import SlotRabbitmqBroker

pytestmark = [pytest.mark.anyio, pytest.mark.services, pytest.mark.usefixtures("impatient")]

HEARTBEAT_FRAME = b"\x08\x00\x00\x00\x00\x00\x00\xce"  # AMQP 0-9-1, section 4.2.7


@pytest.fixture
def logged() -> Iterator[list[EventDict]]:
    with structlog.testing.capture_logs() as events:
        yield events


def named(events: list[EventDict], name: str) -> list[EventDict]:
    return [event for event in events if event["event"] == name]


async def test_closing_sends_what_is_pending(broker: Broker) -> None:
    async with publishing(broker.url, broker.prefix) as publisher:
        wake(publisher, 50)
    assert broker.side.ready() == 50


async def test_each_failure_is_logged_once_and_says_nothing_secret(broker: Broker, logged: list[EventDict]) -> None:
    broker.relay.refuse()
    url = urlsplit(broker.url)
    if url.username is None:
        url = url._replace(netloc=f"guest:guest@{url.netloc}")
    async with publishing(url.geturl().replace("guest:guest", "guest:the-password"), broker.prefix) as publisher:
        wake(publisher, 3)
        await eventually(lambda: len(named(logged, "wake-up not sent")) >= 3, "three failures")
    assert {event["event"] for event in logged} == {"wake-up not sent"}
    assert len(logged) == 3
    assert {tuple(sorted(event)) for event in logged} == {
        ("error", "event", "invocation_id", "log_level", "queue", "run_id")
    }
    assert "password" not in str(logged)


async def test_the_first_wake_up_after_an_outage_is_sent(broker: Broker, logged: list[EventDict]) -> None:
    async with publishing(broker.url, broker.prefix) as publisher:
        wake(publisher)
        await eventually(lambda: broker.side.ready() == 1, "the first message")
        broker.relay.refuse()
        wake(publisher)
        await eventually(lambda: named(logged, "wake-up not sent"), "the failure")
        broker.relay.recover()
        before = broker.side.ready()
        wake(publisher)
        await eventually(lambda: broker.side.ready() > before, "the message after the outage")


async def test_a_link_that_was_cut_meanwhile_costs_no_wake_up(broker: Broker, logged: list[EventDict]) -> None:
    async with publishing(broker.url, broker.prefix) as publisher:
        for _ in range(5):
            before = broker.side.ready()  # a message whose confirmation is cut off is sent twice
            wake(publisher)
            await eventually(lambda before=before: broker.side.ready() > before, "one more message")
            broker.relay.cut()
    assert logged == []


async def test_a_queue_that_was_deleted_is_declared_again_and_no_wake_up_is_lost(
    broker: Broker, logged: list[EventDict]
) -> None:
    async with publishing(broker.url, broker.prefix) as publisher:
        wake(publisher)
        await eventually(lambda: broker.side.ready() == 1, "the first message")
        broker.side.delete()
        wake(publisher, 4)
    assert broker.side.ready() == 4
    assert logged == []


async def test_a_broker_that_does_not_answer_holds_up_neither_callers_nor_the_end(
    broker: Broker, logged: list[EventDict], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wakeups, "CLOSE_WAIT_S", 0.2)
    monkeypatch.setattr("runyard.queue.redis_broker.COMMAND_TIMEOUT_S", GUARD_S)
    broker.relay.fall_silent()
    async with publishing(broker.url, broker.prefix) as publisher:
        wake(publisher, 10)
        await eventually(lambda: publisher._pending.qsize() == 8, "a message in each thread")
    assert named(logged, "wake-ups not sent") == [
        {"event": "wake-ups not sent", "log_level": "warning", "count": 8, "reason": "broker does not answer"}
    ]


async def test_only_so_many_wait_for_a_broker_that_is_slow(
    broker: Broker, logged: list[EventDict], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wakeups, "CLOSE_WAIT_S", 0.2)
    monkeypatch.setattr(wakeups, "PENDING_MAX", 3)
    monkeypatch.setattr("runyard.queue.redis_broker.COMMAND_TIMEOUT_S", GUARD_S)
    broker.relay.fall_silent()
    async with publishing(broker.url, broker.prefix) as publisher:
        for _ in range(wakeups.PUBLISH_THREADS):
            wake(publisher)
            await eventually(publisher._pending.empty, "thread that takes the message")
        wake(publisher, 3)
        assert named(logged, "wake-up dropped") == []
        wake(publisher, 2)
        assert [event["reason"] for event in named(logged, "wake-up dropped")] == ["broker is slow"] * 2


async def test_a_wake_up_after_the_end_is_dropped_and_says_so(broker: Broker, logged: list[EventDict]) -> None:
    async with publishing(broker.url, broker.prefix) as publisher:
        pass
    wake(publisher)
    assert [event["reason"] for event in named(logged, "wake-up dropped")] == ["publisher is closed"]
    assert broker.side.ready() == 0


async def test_many_threads_may_wake(broker: Broker) -> None:
    async with publishing(broker.url, broker.prefix) as publisher:
        await asyncio.gather(*(asyncio.to_thread(wake, publisher, 10) for _ in range(5)))
    assert broker.side.ready() == 50


@on_rabbitmq
async def test_a_publisher_that_sends_nothing_answers_heartbeats(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """RabbitMQ cuts a link that is silent for two intervals; the next wake-up would pay for a new one."""
    monkeypatch.setattr("runyard.queue.rabbit_broker.HEARTBEAT_S", 2)
    monkeypatch.setattr(wakeups, "KEEP_ALIVE_S", 0.2)
    monkeypatch.setattr(wakeups, "PUBLISH_THREADS", 1)
    async with publishing(broker.url, broker.prefix) as publisher:
        wake(publisher)
        await eventually(lambda: broker.relay.sent.count(HEARTBEAT_FRAME) >= 5, "five heartbeats")
        wake(publisher)
        await eventually(lambda: broker.side.ready() == 2, "the message after the silence")
        assert broker.relay.sent.count(b"AMQP\x00\x00\x09\x01") == 1, "one link for both"


@on_rabbitmq
async def test_a_link_that_dies_in_silence_is_let_go(broker: Broker) -> None:
    await sent(broker.url, broker.prefix)
    sender = brokers.connect(broker.url, prefix=broker.prefix)
    assert isinstance(sender, SlotRabbitmqBroker)
    assert sender.connection.is_open
    broker.relay.cut()
    await eventually(lambda: _kept_alive(sender) is None, "the end of the link")
    sender.close()


def _kept_alive(sender: SlotRabbitmqBroker) -> Any:
    sender.keep_alive()
    return getattr(sender.state, "connection", None)


@on_rabbitmq
async def test_senders_and_consumers_leave_no_link_behind(broker: Broker) -> None:
    async with listening(broker.url, broker.prefix, slots=3, queues=("default", "bulk")) as worker:
        await sent(broker.url, broker.prefix, 2)
        await worker.has_woken(2)
        # Each consumer begins with one that it declares its queue by; the queue of these messages may be the first.
        await eventually(lambda: not worker.broker.connections, "consumers with connections of their own alone")
    await eventually(lambda: broker.relay.open_links() == 0, "the end of every link")
