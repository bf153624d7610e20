"""Every worker is told to leave, one after the other, under a hundred runs: readers see no more than a pause."""

import asyncio
import signal
from collections.abc import Collection
from dataclasses import dataclass, field

import pytest
from tests.clients.api import Api, Reading
from tests.fault.accounts import INTERRUPTED, account_of
from tests.fault.conftest import on_redis
from tests.fault.crew import Crew
from tests.fault.readers import is_whole, run_of
from tests.integration.processes import GUARD_S, Process, eventually
from tests.integration.stack import Stack
from tests.standin import Answer, hold, pause, says, silent

pytestmark = [pytest.mark.anyio, on_redis, pytest.mark.timeout(240)]

READER_GUARD_S = 200.0
"""A held run says nothing until every worker has left."""

WORKERS = 3
SETTINGS = {"RUNYARD_DRAIN_S": "1", "RUNYARD_WORKER_SLOTS": "64"}
KINDS = {"talk": 50, "wait": 20, "wait_keyed": 20, "steps": 10}
"""So many are in the model's last answer, in a tool that may not be cut, in one that may, between one step and the next
until they are in the last answer too.
"""

STEPS = 8
STEP_MS = 700
ANSWER = "Let me look. All done."


@dataclass(kw_only=True)
class Told:
    """One reader a run, on one connection from the beginning to the end."""

    numbers: dict[str, int] = field(default_factory=dict)
    """By the runs' ids, as soon as they have one: kinds and gates go by these."""
    readings: dict[str, Reading] = field(default_factory=dict)

    def of(self, kind: str) -> set[str]:
        return {run_id for run_id, number in self.numbers.items() if kind_of(number) == kind}

    async def read(self, api: Api, number: int) -> None:
        async with api.streaming("mortal", f"<run {number}>") as reading:
            self.numbers[run_of(reading)] = number
            await reading.rest(guard_s=READER_GUARD_S)
            self.readings[run_of(reading)] = reading


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


async def test_every_worker_leaves_and_no_run_is_lost(stack: Stack, crew: Crew, unique: str) -> None:
    api, told = stack.gateway.user(), Told()
    for number in range(sum(KINDS.values())):
        stack.standin.answers(*what_the_model_says(number, unique), by="turn", contains=f"<run {number}>")
    workers = await crew.join(WORKERS, **SETTINGS)
    async with asyncio.TaskGroup() as readers:
        for number in range(sum(KINDS.values())):
            readers.create_task(told.read(api, number))
        await all_at_work(stack, told, unique)
        waited_for: set[str] = set()
        for leaving in workers[:-1]:
            await crew.join(**SETTINGS)
            uncut = await leaves(stack, crew, leaving, told)
            for run_id in uncut:
                stack.open_gate(f"{unique}-{told.numbers[run_id]}")
            assert await leaving.exited() == 0
            waited_for |= uncut
        await crew.join(**SETTINGS)
        cut = await leaves(stack, crew, workers[-1], told)
        workers[-1].send(signal.SIGTERM)
        assert await workers[-1].exited() == 0
        assert running(stack, told) == told.numbers.keys()
        stack.open_gate(unique)
        stack.standin.gate(unique).release()

    assert [worker.complaints() for worker in workers] == [[]] * WORKERS
    assert crew.burials() == []
    assert waited_for | cut == told.of("wait")
    accounts = {run_id: await account_of(stack, api, run_id) for run_id in told.numbers}
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
    assert (worker.exit_code is None) == bool(uncut)
    return uncut


def acts_still(stack: Stack, run_id: str) -> bool:
    return not any(effect.startswith("waited ") for effect in stack.effects(run_id))
