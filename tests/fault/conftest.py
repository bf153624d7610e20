"""Two gateways on Postgres and Redis, with messages over Redis and over RabbitMQ; the tests bring the workers."""

from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass

import pytest
from tests.contract.queue.queue_sides import RabbitmqSide, RedisSide, rabbitmq_side, redis_side
from tests.fault.crew import Crew, working
from tests.fault.gateways import starting_gateways
from tests.fault.soundness import assert_sound
from tests.integration.stack import Stack, postgres_and_redis, postgres_redis_and_rabbitmq
from tests.previous import PreviousVersion

from runyard.clock import now_ms

Side = RedisSide | RabbitmqSide

BROKERS = {"redis": (postgres_and_redis, redis_side), "rabbitmq": (postgres_redis_and_rabbitmq, rabbitmq_side)}


@dataclass(frozen=True, kw_only=True)
class Fleet:
    stack: Stack
    broker: Side


@pytest.fixture(scope="session", params=["redis", "rabbitmq"])
async def fleet(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Fleet]:
    """One after the other: pytest puts the tests in that order, so that the database's links suffice."""
    backings, sides = BROKERS[request.param]
    with backings() as backing, sides(backing.broker_url, backing.prefix) as side:
        async with starting_gateways(backing, tmp_path_factory.mktemp(f"{request.param}-fleet")) as stack:
            yield Fleet(stack=stack, broker=side)


@pytest.fixture(scope="session")
def previous(tmp_path_factory: pytest.TempPathFactory) -> PreviousVersion:
    return PreviousVersion.unpacked(tmp_path_factory.mktemp("previous"))


@pytest.fixture
def stack(fleet: Fleet) -> Iterator[Stack]:
    """What one test scripted is forgotten after it."""
    with fleet.stack.used_by_one_test():
        yield fleet.stack


@pytest.fixture(autouse=True)
async def sound(request: pytest.FixtureRequest) -> AsyncIterator[None]:
    """After every case, once its workers have left: nothing is broken. A test need not ask for it."""
    began_ms = now_ms()
    yield
    for stack in {id(used): used for used in request.node.funcargs.values() if isinstance(used, Stack)}.values():
        await assert_sound(stack, since_ms=began_ms)


@pytest.fixture
def broker(fleet: Fleet) -> Side:
    """The queue of the fleet's workers."""
    return fleet.broker


@pytest.fixture
async def crew(stack: Stack) -> AsyncIterator[Crew]:
    async with working(stack) as crew:
        yield crew


on_redis = pytest.mark.parametrize("fleet", ["redis"], indirect=True)
