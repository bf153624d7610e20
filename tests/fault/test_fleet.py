"""Two hundred runs at once on three workers, of which one is killed: every run ends, and nothing happens twice."""

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field

import pytest
from tests.clients.api import Api, Reading
from tests.clients.sse import Event
from tests.fault.accounts import account_of
from tests.fault.crew import Crew
from tests.fault.readers import is_whole, moved, run_of
from tests.integration.processes import eventually
from tests.integration.stack import Stack
from tests.standin import Answer, hold, says, thinks

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(240)]

READER_GUARD_S = 200.0
"""The runs share the machine: the first frame of the last one comes when most of the others have ended."""

RUNS = 200
WORKERS = 3
HELD = {"talk": 24, "wait": 12, "wait_keyed": 12}
"""So many are open at the kill: in the model's last answer, in a tool that must not act twice, in one that may."""

CALLS_AT_ONCE = 40
"""More may wait too long for a link to Postgres, and are told to come again."""

ANSWER = "Let me look. One more. All done.\r\n"


def what_the_model_says(kind: str, gate: str) -> list[Answer]:
    """Two steps of two tools, one of which must not act twice, then the answer."""
    a, b = {"order": "a"}, {"order": "b"}
    first = thinks("Both, ", "at once.").says("Let me ", "look. ").calls("charge", a).calls("look_up", a)
    second, last = says("One ", "more. "), says("All ", "do", "ne.\r\n")
    match kind:
        case "wait":
            second = second.calls("wait", {"gate": gate}).calls("look_up", b)
        case "wait_keyed":
            second = second.calls("charge", b).calls("wait_keyed", {"gate": gate})
        case _:
            second = second.calls("charge", b).calls("look_up", b)
    if kind == "talk":
        last = says("All ", hold(gate), "do", "ne.\r\n")
    return [first, second, last]


@dataclass(kw_only=True)
class Audience:
    """A reader for every run. Of the runs that are held, every other one's moves to the other gateway at the kill."""

    homes: tuple[Api, Api]
    killed: asyncio.Event = field(default_factory=asyncio.Event)
    kinds: dict[str, str] = field(default_factory=dict)
    """By the runs' ids, as soon as they have one."""
    readings: dict[str, Reading] = field(default_factory=dict)
    """By the runs' ids, each when it was read to its end."""

    _calling: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(CALLS_AT_ONCE))

    async def read(self, number: int, kind: str) -> None:
        here, there = self.homes if number % 2 else self.homes[::-1]
        async with AsyncExitStack() as exits:
            async with self._calling:
                reading = await exits.enter_async_context(here.streaming("mortal", f"<{kind}> {number}"))
            run_id = run_of(reading)
            self.kinds[run_id] = kind
            if kind in HELD:
                await reading.until(is_held(kind), guard_s=READER_GUARD_S)
            if kind not in HELD or number % 4 < 2:
                await reading.rest(guard_s=READER_GUARD_S)
                self.readings[run_id] = reading
                return
        await self.killed.wait()
        async with moved(reading, there) as resumed:
            await resumed.rest(guard_s=READER_GUARD_S)
            self.readings[run_id] = resumed


def is_held(kind: str) -> Callable[[Event], bool]:
    """Tells the event after which a run of this kind goes on only when the gate opens."""
    if kind == "talk":
        return lambda event: event.type == "" and event.data == "All "
    return lambda event: event.type == "tool_start" and f'"{kind}"' in event.data


async def test_two_hundred_runs_outlive_a_worker(stack: Stack, crew: Crew, unique: str) -> None:
    here, there = (gateway.user("reader") for gateway in stack.gateways)
    kinds = [kind for kind, count in HELD.items() for _ in range(count)]
    kinds += ["pass"] * (RUNS - len(kinds))
    for kind in {*kinds}:
        stack.standin.answers(*what_the_model_says(kind, unique), by="turn", contains=f"<{kind}>")
    workers = await crew.join(WORKERS)
    audience = Audience(homes=(here, there))
    async with asyncio.TaskGroup() as readers:
        for number, kind in enumerate(kinds):
            readers.create_task(audience.read(number, kind))
        await stack.standin.gate(unique).reached(HELD["talk"], guard_s=READER_GUARD_S)
        for kind in ("wait", "wait_keyed"):
            await eventually(
                lambda kind=kind: at_work(stack, audience, kind) == HELD[kind], kind, guard_s=READER_GUARD_S
            )
        held = {run_id for run_id, kind in audience.kinds.items() if kind in HELD}
        victim = max(workers, key=lambda worker: len(crew.held_by(worker) & held))
        abandoned = crew.held_by(victim) & held
        crew.kill(victim)
        stack.open_gate(unique)
        stack.standin.gate(unique).release()
        audience.killed.set()

    assert len(held) == sum(HELD.values())
    assert len(abandoned) >= len(held) // WORKERS
    assert len(audience.readings) == RUNS
    taken_over = set()
    for run_id, reading in audience.readings.items():
        assert is_whole(reading)
        assert reading.events[-1].type == "result"
        account = await account_of(stack, here, run_id)
        assert reading.text == account.text == ANSWER
        assert account.miscounted() == []
        if account.deaths:
            taken_over.add(run_id)
    assert abandoned <= taken_over, "among others that were on their way"
    # Whom an earlier test killed at its end is buried here too, without runs.
    assert [burial["runs"] for burial in crew.burials() if burial["runs"]] == [len(taken_over)]


def at_work(stack: Stack, audience: Audience, tool: str) -> int:
    """How many runs' tools of that name have acted."""
    runs = [run_id for run_id, kind in audience.kinds.items() if kind == tool]
    return sum(any(effect.startswith(f"{tool} ") for effect in stack.effects(run_id)) for run_id in runs)
