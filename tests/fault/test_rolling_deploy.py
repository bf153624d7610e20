"""A new version takes the place of the one before, process by process, under a hundred runs and a hundred readers."""

import asyncio
import signal
from collections.abc import AsyncIterator, Collection
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field

import httpx2
import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.clients.answer import is_terminal
from tests.clients.api import Api, Reading
from tests.contract.queue.queue_sides import redis_side
from tests.fault.accounts import INTERRUPTED, account_of
from tests.fault.conftest import Fleet
from tests.fault.crew import Crew
from tests.fault.gateways import GATEWAYS, Doors
from tests.fault.readers import is_whole, moved, run_of
from tests.integration.processes import GUARD_S, Process, eventually
from tests.integration.stack import Gateway, Stack, postgres_and_redis, standing_by
from tests.ports import free_port
from tests.previous import PreviousVersion
from tests.standin import Answer, hold, pause, says, silent

from runyard.db.migrate import upgrade

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(240)]

READER_GUARD_S = 200.0
"""A held run says nothing until every process has been replaced."""

WORKERS = 3
SLOTS = 64
SETTINGS = {"RUNYARD_DRAIN_S": "1", "RUNYARD_WORKER_SLOTS": str(SLOTS)}
KINDS = {"talk": 50, "wait": 20, "wait_keyed": 20, "steps": 10}
"""So many are in the model's last answer, in a tool that may not be cut, in one that may, between one step and the next
until they are in the last answer too.
"""

RUNS = sum(KINDS.values())
STEPS = 8
STEP_MS = 700
ANSWER = "Let me look. All done."


@pytest.fixture(scope="module")
async def fleet(previous: PreviousVersion, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Fleet]:
    """As the previous version left it, and no process yet."""
    with postgres_and_redis() as backing, redis_side(backing.broker_url, backing.prefix) as side:
        folder = tmp_path_factory.mktemp("rolling")
        async with standing_by(backing, folder, migrate=previous.migrate) as stack:
            yield Fleet(stack=stack, broker=side)


@dataclass(kw_only=True)
class Told:
    """One reader a run, from its call to its end. Whose gateway leaves goes on at the other one from its cursor."""

    doors: Doors
    numbers: dict[str, int] = field(default_factory=dict)
    """By the runs' ids, as soon as they have one: kinds and gates go by these."""
    readings: dict[str, Reading] = field(default_factory=dict)
    moves: list[int] = field(default_factory=list)

    def of(self, kind: str) -> set[str]:
        return {run_id for run_id, number in self.numbers.items() if kind_of(number) == kind}

    async def read(self, number: int) -> None:
        gateway = self.doors.gateways[number % GATEWAYS]
        api = gateway.user()
        async with api.streaming("mortal", f"<run {number}>") as reading:
            self.numbers[run_of(reading)] = number
            run_id = run_of(reading)
            with suppress(httpx2.TransportError):  # whoever is slow to take what was written is cut off
                await reading.rest(guard_s=READER_GUARD_S)
        moves = 0
        while not (reading.events and is_terminal(reading.events[-1])):
            moves += 1
            there = Api(self.doors.gateways[(number + moves) % GATEWAYS].http, api.headers)
            with suppress(httpx2.TransportError):
                async with moved(reading, there) as reading:
                    await reading.rest(guard_s=READER_GUARD_S)
        self.readings[run_id] = reading
        self.moves.append(moves)


def kind_of(number: int) -> str:
    return [kind for kind, count in KINDS.items() for _ in range(count)][number]


def what_the_model_says(number: int, gate: str) -> list[Answer]:
    """Until the gate opens no run ends."""
    begins, ends = says("Let me ", "look. "), says("All ", hold(gate), "done.")
    match kind_of(number):
        case "wait":
            return [begins.calls("wait", {"gate": f"{gate}-{number}"}), ends]
        case "wait_keyed":
            return [begins.calls("wait_keyed", {"gate": gate}), ends]
        case "steps":
            step = silent.then(pause(STEP_MS)).calls("charge", {"order": "more"})
            return [begins.calls("charge", {"order": "first"}), *[step] * STEPS, ends]
        case _:
            return [begins.calls("charge", {"order": "only"}), ends]


async def test_nothing_fails_and_nothing_repeats(
    stack: Stack, crew: Crew, previous: PreviousVersion, unique: str
) -> None:
    async with AsyncExitStack() as exits:
        told = Told(doors=Doors(stack=stack, exits=exits))
        await roll(stack, crew, previous, told, unique)


async def roll(stack: Stack, crew: Crew, previous: PreviousVersion, told: Told, unique: str) -> None:
    doors = told.doors
    for number in range(RUNS):
        stack.standin.answers(*what_the_model_says(number, unique), by="turn", contains=f"<run {number}>")
    leaving, *doors.gateways = await asyncio.gather(
        crew.join(WORKERS, of=previous, **SETTINGS),
        *(doors.open(of=previous) for _ in range(GATEWAYS)),
    )
    ports = {"gateways": [free_port() for _ in range(GATEWAYS)], "workers": [free_port() for _ in range(WORKERS)]}
    async with asyncio.TaskGroup() as readers:
        for number in range(RUNS):
            readers.create_task(told.read(number))
        await all_at_work(stack, told, unique)
        await asyncio.to_thread(upgrade, stack.backing.database_url)
        waited_for: set[str] = set()
        for number in range(GATEWAYS):
            coming, _ = await asyncio.gather(
                doors.open(RUNYARD_METRICS_PORT=str(ports["gateways"][number])),
                crew.join(**SETTINGS, RUNYARD_METRICS_PORT=str(ports["workers"][number])),
            )
            uncut = await leaves(stack, crew, leaving[number], told)
            for run_id in uncut:
                stack.open_gate(f"{unique}-{told.numbers[run_id]}")
            assert await leaving[number].exited() == 0
            waited_for |= uncut
            await doors.replace(number, by=coming)
        await crew.join(**SETTINGS, RUNYARD_METRICS_PORT=str(ports["workers"][-1]))
        cut = await leaves(stack, crew, leaving[-1], told)
        if cut:
            leaving[-1].send(signal.SIGTERM)
        assert await leaving[-1].exited() == 0
        assert running(stack, told) == told.numbers.keys()
        await depth_is(stack, doors.gateways, ports["gateways"], at_work=RUNS, readers=RUNS)
        stack.open_gate(unique)
        stack.standin.gate(unique).release()

    assert [worker.complaints() for worker in crew.workers] == [[]] * 2 * WORKERS
    assert crew.burials() == []
    assert waited_for | cut == told.of("wait")
    assert min(told.moves) >= 1, "every gateway was replaced"
    await depth_is(stack, doors.gateways, ports["gateways"], at_work=0, readers=0)
    settled = [await metric(port, "runyard_invocations_settled_total", status="completed") for port in ports["workers"]]
    assert sum(settled) == RUNS
    admin = doors.gateways[0].user(roles=("admin",))
    accounts = {run_id: await account_of(stack, admin, run_id) for run_id in told.numbers}
    for run_id, account in accounts.items():
        reading = told.readings[run_id]
        assert is_whole(reading)
        assert reading.events[-1].type == "result"
        assert reading.text == account.text == ANSWER
        assert account.miscounted() == []
        assert account.deaths == []
    for run_id in waited_for:
        assert accounts[run_id].count("waited") == 1
        assert accounts[run_id].result("wait") == ("let through", False)
    for run_id in cut:
        assert accounts[run_id].count("waited") == 0
        assert accounts[run_id].result("wait") == (INTERRUPTED, True)
    for run_id in told.of("wait_keyed"):
        assert accounts[run_id].count("wait_keyed") > 1, "it was cut and began again"
        assert len({tuple(words) for words in accounts[run_id].effects}) == 1, "the same call and key"
        assert accounts[run_id].result("wait_keyed") == ("let through", False)


async def all_at_work(stack: Stack, told: Told, gate: str) -> None:
    await stack.standin.gate(gate).reached(KINDS["talk"], guard_s=GUARD_S)
    for kind in ("wait", "wait_keyed"):
        await eventually(lambda kind=kind: acted(stack, told, kind) == told.of(kind), f"all of {kind} at work")
    assert running(stack, told) == told.numbers.keys()
    assert len(told.numbers) == sum(KINDS.values())


def acted(stack: Stack, told: Told, tool: str) -> set[str]:
    """The runs of this kind whose tool has acted."""
    return {run for run in told.of(tool) if any(effect.startswith(f"{tool} ") for effect in stack.effects(run))}


def running(stack: Stack, told: Told) -> Collection[str]:
    """The runs that some worker has, or will have at once: none of them has ended."""
    rows = stack.execute("SELECT id FROM agent_runs WHERE status IN ('running', 'queued')")
    return {run_id for (run_id,) in rows} & told.numbers.keys()


async def leaves(stack: Stack, crew: Crew, worker: Process, told: Told) -> set[str]:
    """It is told to, and gives up all but the runs whose tools may not be cut: those it has when this returns."""
    uncut = {run_id for run_id in crew.held_by(worker) & told.of("wait") if acts_still(stack, run_id)}
    worker.send(signal.SIGTERM)
    await eventually(lambda: crew.held_by(worker) == uncut, "worker with nothing but what it may not cut")
    assert worker.exit_code is None or not uncut
    return uncut


def acts_still(stack: Stack, run_id: str) -> bool:
    return not any(effect.startswith("waited ") for effect in stack.effects(run_id))


async def depth_is(stack: Stack, gateways: list[Gateway], ports: list[int], *, at_work: int, readers: int) -> None:
    """By the rows, by each gateway's answer and by its metrics, which look once a second."""

    async def seen(gateway: Gateway, port: int) -> list[int]:
        answer = (await gateway.user(roles=("admin",)).get("/v1/queues")).json()
        (queue,) = [item for item in answer["items"] if item["queue"] == "default"]
        counts = [await metric(port, "runyard_queue_runs", queue="default", status=it) for it in ("queued", "running")]
        assert (queue["workers"], queue["draining"], queue["slots"]) == (WORKERS, 0, WORKERS * SLOTS)
        return [queue["queued"] + queue["running"], int(sum(counts))]

    async with asyncio.timeout(GUARD_S):
        while True:
            ((rows,),) = stack.execute("SELECT count(*) FROM agent_runs WHERE status IN ('running', 'queued')")
            found = [count for pair in zip(gateways, ports, strict=True) for count in await seen(*pair)]
            open_streams = sum([await metric(port, "runyard_open_streams") for port in ports])
            if {rows, *found} == {at_work} and open_streams == readers:
                return


async def metric(port: int, name: str, **labels: str) -> float:
    """The sum of those samples of a process that have these labels."""
    async with httpx2.AsyncClient(trust_env=False) as http:
        shown = (await http.get(f"http://127.0.0.1:{port}/metrics")).text
    samples = [sample for family in text_string_to_metric_families(shown) for sample in family.samples]
    return sum(sample.value for sample in samples if sample.name == name and labels.items() <= sample.labels.items())
