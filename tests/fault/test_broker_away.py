"""The broker goes away, forgets, has enough of a consumer: every call is accepted, and executed once."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, AsyncExitStack, ExitStack
from dataclasses import dataclass

import pika
import pytest
from tests.clients.metrics import scraped, value
from tests.contract.queue.queue_sides import rabbitmq_side, redis_side
from tests.fault.accounts import Started, claims
from tests.fault.conftest import Fleet, Side
from tests.fault.crew import Crew, working
from tests.integration.processes import eventually
from tests.integration.stack import Gateway, Stack, serving
from tests.mortal_servers import MortalServer, mortal_rabbitmq, mortal_redis
from tests.ports import free_port
from tests.relay import Relay, relay_before
from tests.standin import hold, says

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(180)]

CALLS = 10
CONSUMER_TIMEOUT_MS = 1000
"""Who keeps RabbitMQ waiting for an acknowledgement is soon thrown out."""


@dataclass(frozen=True, kw_only=True)
class Far:
    """A gateway and a worker with one slot, whose broker is one that may be killed, behind a relay."""

    server: MortalServer
    relay: Relay
    gateway: Gateway
    metrics_port: int
    crew: Crew


@pytest.fixture(scope="session")
def mortal_node() -> Iterator[Callable[[], MortalServer]]:
    """A RabbitMQ takes ten seconds to start: it does while the fleet without one is at its tests."""
    with ExitStack() as exits, ThreadPoolExecutor(max_workers=1) as starting:
        node = mortal_rabbitmq(consumer_timeout=CONSUMER_TIMEOUT_MS, channel_tick_interval=CONSUMER_TIMEOUT_MS)
        started = starting.submit(exits.enter_context, node)
        yield started.result


@pytest.fixture(scope="module")
async def far(fleet: Fleet, mortal_node: Callable[[], MortalServer]) -> AsyncIterator[Far]:
    stack = fleet.stack
    with ExitStack() as servers:
        server = mortal_node() if stack.name == "rabbitmq" else servers.enter_context(mortal_redis())
        relay = servers.enter_context(relay_before(server.url))
        async with working(stack) as crew, AsyncExitStack() as exits:
            settings = {"RUNYARD_BROKER_URL": relay.url}
            metrics_port = free_port()
            shown = {"RUNYARD_METRICS_PORT": str(metrics_port)}
            process = exits.enter_context(stack.process("runyard_gateway", **settings, **shown))
            await crew.join(RUNYARD_WORKER_SLOTS="1", **settings)
            gateway = await exits.enter_async_context(serving(process))
            yield Far(server=server, relay=relay, gateway=gateway, metrics_port=metrics_port, crew=crew)
            assert process.complaints() == []
            relay.recover()


@pytest.fixture
def model(stack: Stack, unique: str) -> Stack:
    """What the model says to a run that holds the only slot, and to those that wait for it."""
    stack.standin.answers(says("A ", hold(unique), "talk."), contains="<long>")
    stack.standin.answers(says("Short."), by="turn", contains="<short>")
    return stack


@pytest.mark.usefixtures("model")
async def test_a_broker_that_is_killed_and_comes_back_loses_and_doubles_nothing(
    stack: Stack, far: Far, unique: str
) -> None:
    """Before that, a run has gone on for longer than RabbitMQ waits for an acknowledgement."""
    long = await holds_the_slot(stack, far, unique)
    if stack.name == "rabbitmq":
        await asyncio.to_thread(outstay_the_consumer_timeout, far.server.url)
    waiting = await called(far.gateway)
    far.server.kill()
    waiting += await called(far.gateway)
    stack.standin.gate(unique).release()
    await end_well(stack, far.gateway, [long, *waiting])
    unsent = await eventually(lambda: far.gateway.process.events("wake-up not sent"), "failure to send")
    assert value(scraped(far.metrics_port), "runyard_wake_ups_unsent_total") >= len(unsent)
    await asyncio.to_thread(far.server.start)
    await end_well(stack, far.gateway, await called(far.gateway))


def outstay_the_consumer_timeout(url: str) -> None:
    """Take a message and keep it until RabbitMQ has had enough."""
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        channel = connection.channel()
        channel.queue_declare("kept")
        channel.basic_publish("", "kept", b"")
        with pytest.raises(pika.exceptions.ChannelClosedByBroker, match="timed out"):
            for _ in channel.consume("kept"):
                pass


@pytest.mark.usefixtures("model")
async def test_runs_whose_queue_is_deleted_are_executed(stack: Stack, far: Far, unique: str) -> None:
    sides: dict[str, Callable[[str, str], AbstractContextManager[Side]]] = {
        "postgres": redis_side,
        "rabbitmq": rabbitmq_side,
    }
    long = await holds_the_slot(stack, far, unique)
    waiting = await called(far.gateway)
    with sides[stack.name](far.server.url, stack.backing.prefix) as side:
        side.delete()
    stack.standin.gate(unique).release()
    await end_well(stack, far.gateway, [long, *waiting])
    await end_well(stack, far.gateway, await called(far.gateway))


@pytest.mark.usefixtures("model")
async def test_calls_whose_messages_are_never_sent_are_executed(stack: Stack, far: Far) -> None:
    """The broker takes what it is sent and never answers; then the gateway dies with what it could not send."""
    far.relay.fall_silent()
    await end_well(stack, far.gateway, await called(far.gateway))
    unsent = await called(far.gateway)
    given_up = {event["run_id"] for event in far.gateway.process.events("wake-up not sent")}
    assert given_up.isdisjoint(run["runId"] for run in unsent), "no answer waits for what becomes of its message"
    far.gateway.process.kill()
    await end_well(stack, stack.gateway, unsent)


async def holds_the_slot(stack: Stack, far: Far, gate: str) -> Started:
    long = await far.gateway.user("reader").start("talker", "<long>")
    await stack.standin.gate(gate).reached()
    return long


async def called(gateway: Gateway) -> list[Started]:
    api = gateway.user("reader")
    return list(await asyncio.gather(*(api.start("talker", "<short>") for _ in range(CALLS))))


async def end_well(stack: Stack, gateway: Gateway, started: Sequence[Started]) -> None:
    """All are completed, each by one worker."""
    api = gateway.user("reader")
    results = await asyncio.gather(*(api.settled(run["invocationId"]) for run in started))
    assert {result["status"] for result in results} == {"completed"}
    assert set(claims(stack, started)) == {1}
