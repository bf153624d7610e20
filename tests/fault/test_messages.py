"""Messages are lost, doubled and late, and slots are few: on both brokers every run is executed once all the same."""

import asyncio
from collections.abc import AsyncIterator, Iterable

import pytest
from tests.clients.api import Api
from tests.contract.queue.listening import publishing
from tests.fault.accounts import Started, claims
from tests.fault.conftest import Fleet, Side
from tests.fault.crew import Crew, working
from tests.integration.processes import eventually
from tests.integration.stack import Stack
from tests.standin import hold, says

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("two_slots")]

SLOTS = 2
QUEUED = 100
TIMES = 10


@pytest.fixture(scope="module")
async def two_slots(fleet: Fleet) -> AsyncIterator[None]:
    """Of two workers."""
    async with working(fleet.stack) as crew:
        await crew.join(SLOTS, RUNYARD_WORKER_SLOTS="1")
        yield


async def test_runs_whose_messages_are_lost_are_executed(stack: Stack, broker: Side, crew: Crew, unique: str) -> None:
    stack.standin.answers(says("Long ", hold(unique), "talk."), by="turn", contains="<long>")
    stack.standin.answers(says("Short."), by="turn", contains="<short>")
    api = stack.gateway.user()
    long = [await api.start("talker", f"<long> {number}") for number in range(SLOTS)]
    await stack.standin.gate(unique).reached(SLOTS)
    short = await asyncio.gather(*(api.start("talker", f"<short> {number}") for number in range(QUEUED)))
    await is_ready(broker, QUEUED, or_more=SLOTS)
    assert broker.take_all() >= QUEUED
    await crew.join(2)
    await complete(api, short)
    assert await statuses(api, long) == {"running"}
    stack.standin.gate(unique).release()
    await complete(api, long)
    assert set(claims(stack, [*long, *short])) == {1}


async def test_short_runs_pass_a_long_one(stack: Stack, broker: Side, unique: str) -> None:
    """No worker keeps a message that it has no slot for, and none counts as waiting that is being executed.

    But for those of runs that were claimed without a message: a worker looks every 2 s whether something is queued. If
    that comes before the message is fetched, the message waits for the next free slot.
    """
    gates = {name: stack.standin.gate(f"{unique}-{name}") for name in ("long", "other")}
    for name, gate in gates.items():
        stack.standin.answers(says("A ", hold(gate.name), "talk."), contains=f"<{name}>")
    stack.standin.answers(says("Short."), by="turn", contains="<short>")
    api = stack.gateway.user()
    long, other = [await api.start("talker", f"<{name}>") for name in gates]
    for gate in gates.values():
        await gate.reached()
    short = [await api.start("talker", f"<short> {number}") for number in range(4)]
    await is_ready(broker, len(short), or_more=SLOTS)
    gates["other"].release()
    await complete(api, [other, *short])
    await is_ready(broker, 0)
    assert await statuses(api, [long]) == {"running"}
    gates["long"].release()
    await complete(api, [long])


async def test_doubled_and_late_messages_start_nothing_twice(stack: Stack, broker: Side, unique: str) -> None:
    stack.standin.answers(says("Once.", hold(unique)), by="turn")
    api = stack.gateway.user()
    async with publishing(stack.backing.broker_url, stack.backing.prefix) as publisher:

        def again(runs: Iterable[Started]) -> None:
            for run in runs:
                for _ in range(TIMES):
                    publisher.wake(run_id=run["runId"], invocation_id=run["invocationId"], queue="default")

        early = [await api.start("talker") for _ in range(5)]
        again(early)
        await stack.standin.gate(unique).reached(SLOTS)
        again(early)
        stack.standin.gate(unique).release()
        await complete(api, early)
        again(early)
        late = [await api.start("talker") for _ in range(5)]
        await complete(api, late)
    await is_ready(broker, 0)
    assert set(claims(stack, [*early, *late])) == {1}
    assert len(stack.standin.calls) == 10


async def is_ready(broker: Side, count: int, *, or_more: int = 0) -> None:
    """So many messages, and none beyond `or_more` others, could be fetched by anybody."""
    wanted = range(count, count + or_more + 1)
    await eventually(lambda: broker.ready() in wanted, f"{count} messages that are ready: there are {broker.ready()}")


async def complete(api: Api, runs: Iterable[Started]) -> None:
    results = await asyncio.gather(*(api.settled(run["invocationId"]) for run in runs))
    assert {result["status"] for result in results} == {"completed"}


async def statuses(api: Api, runs: Iterable[Started]) -> set[str]:
    return {(await api.get(f"/v1/runs/{run['runId']}")).json()["status"] for run in runs}
