"""Workers are frozen until another one has ended their runs, then they wake up in the middle of each."""

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any

import pytest
from tests.clients.api import Api, Reading
from tests.clients.metrics import shows
from tests.contract.store import severing
from tests.contract.store.severing import Cut, Held
from tests.fault.accounts import INTERRUPTED, account_of
from tests.fault.conftest import on_redis
from tests.fault.crew import Crew
from tests.fault.readers import is_whole, run_of
from tests.integration.processes import GUARD_S, eventually
from tests.integration.stack import Stack
from tests.ports import free_port
from tests.relay import Relay, relay_before
from tests.standin import Answer, Gate, calls, hold, says

pytestmark = [pytest.mark.anyio, on_redis]

RUNS_OF_A_KIND = 3
TABLES = {
    "agent_runs": "id",
    "agent_invocations": "id",
    "agent_inputs": "id",
    "agent_messages": "run_id, seq",
    "agent_calls": 'run_id, assistant_seq, "index"',
}

TEXTS = {
    "talk": "The living speak.",
    "work": "It may have acted.",
    "unfinished": "The living speak.",
    "writing": "Heard.",
    "charging": "Stored. Charged.",
    "committing": "Stored.",
}
"""What is stored of each kind of run, and what its reader has in the end."""


@dataclass(kw_only=True)
class Scene:
    """The runs of both workers, by their kinds, and a reader of each."""

    stack: Stack
    api: Api
    exits: AsyncExitStack
    gate: str
    readings: dict[str, list[Reading]] = field(default_factory=lambda: {kind: [] for kind in TEXTS})

    @property
    def every(self) -> list[Reading]:
        return [reading for readings in self.readings.values() for reading in readings]

    def standing(self, name: str) -> Gate:
        return self.stack.standin.gate(f"{self.gate}-{name}")

    async def begin(self, kind: str, *scripts: Answer) -> Reading:
        mark = f"<{kind} {len(self.readings[kind])}>"
        self.stack.standin.answers(*scripts, contains=mark)
        reading = await self.exits.enter_async_context(self.api.streaming("mortal", mark))
        self.readings[kind].append(reading)
        return reading

    async def begin_what_stands_still(self) -> None:
        """Runs in the middle of an answer and of a tool. One kind is not at its end when the dead wake up."""
        says_the_dead = says("The dead ", "speak", hold(self.standing("dead").name), ", and go on.")
        says_the_living = says("The living ", hold(self.standing("living").name), "speak.")
        for _ in range(RUNS_OF_A_KIND):
            await self.begin("talk", says_the_dead, says("The living speak."))
            await self.begin("work", calls("wait", {"gate": self.gate}), says("It may have acted."))
            await self.begin("unfinished", says_the_dead, says_the_living)
        for reading in [*self.readings["talk"], *self.readings["unfinished"]]:
            await reading.until_text("The dead speak")
        for reading in self.readings["work"]:
            await at_work(self.stack, reading)

    async def begin_what_is_on_its_way(self, frames: Relay, rows: severing.Relay) -> list[Held]:
        """Frames that have not arrived, a commit whose answer has not, a commit that has not: the last two are returned
        and pass when they are let. They come last: Postgres waits 5 s for a commit, and a worker 10 s for its answer.
        """
        says_more, ends = self.standing("more"), self.standing("end")
        says_never = says("Never ", hold(says_more.name), "heard.", hold(ends.name))
        writing = await self.begin("writing", says_never, says("Heard."))
        await writing.until_text("Never ")
        committing = await self.begin("committing", says("Never ", hold(ends.name), "stored."), says("Stored."))
        await committing.until_text("Never ")
        answered = rows.hold(b"INSERT INTO agent_calls", Cut.AFTER)
        await self.begin("charging", says("Stored. ").calls("charge", {"order": "a"}), says("Charged."))
        await reached(answered)
        sent = rows.hold(b"agent_messages", Cut.BEFORE)
        ends.advance()
        await reached(sent)
        frames.fall_silent_at(b"heard.")
        says_more.release()
        await eventually(lambda: b"heard." in frames.sent, "frames on their way")
        return [answered, sent]


async def test_workers_that_wake_up_in_their_graves_write_nothing(stack: Stack, crew: Crew, unique: str) -> None:
    """Two of them. One wakes up in the middle of its runs, of the other one what it had sent comes too late."""
    with relay_before(stack.backing.redis_url) as frames:
        async with severing.relay_before(stack.backing.database_url) as rows, AsyncExitStack() as exits:
            scene = Scene(stack=stack, api=stack.gateway.user(), exits=exits, gate=unique)
            metrics_port, slots = free_port(), 3 * RUNS_OF_A_KIND
            [standing] = await crew.join(RUNYARD_METRICS_PORT=str(metrics_port), RUNYARD_WORKER_SLOTS=str(slots))
            await scene.begin_what_stands_still()  # and takes all its slots
            [sending] = await crew.join(RUNYARD_REDIS_URL=frames.url, RUNYARD_DATABASE_URL=rows.url)
            on_their_way = await scene.begin_what_is_on_its_way(frames, rows)
            zombies = (standing, sending)

            for zombie in zombies:
                crew.freeze(zombie)
            await crew.join()
            unfinished = scene.readings["unfinished"]
            for reading in scene.every:
                if reading not in unfinished:
                    await reading.rest(guard_s=GUARD_S)
                    await closed(stack, reading)
            for reading in unfinished:
                await reading.until(lambda event: event.data == "The living ", guard_s=GUARD_S)
            before = everything(stack, scene.every)

            stack.open_gate(unique)
            for name in ("dead", "end"):
                scene.standing(name).release()
            for write in on_their_way:
                write.passes.set()
            frames.recover()
            for zombie in zombies:
                crew.thaw(zombie)
            for zombie in zombies:
                await crew.born_again(zombie)
            await shows(metrics_port, "runyard_runs_lost_total", slots)
            await crew.retire(*zombies)
            assert everything(stack, scene.every) == before

            scene.standing("living").release()
            for reading in unfinished:
                await reading.rest()
    for kind, text in TEXTS.items():
        for reading in scene.readings[kind]:
            assert is_whole(reading)
            account = await account_of(stack, scene.api, run_of(reading))
            assert reading.text == account.text == text
            assert account.miscounted() == []
            assert account.deaths == [["wait"] if kind == "work" else []]
            if kind == "work":
                assert account.result("wait") == (INTERRUPTED, True)
                assert account.count("wait") == 1


async def reached(held: Held) -> None:
    async with asyncio.timeout(GUARD_S):
        await held.reached.wait()


async def at_work(stack: Stack, reading: Reading) -> None:
    await eventually(lambda: stack.effects(run_of(reading)), "tool at work")


async def closed(stack: Stack, reading: Reading) -> None:
    """The row says so too, which comes a moment later."""
    query = "SELECT id FROM agent_invocations WHERE run_id = :run AND stream_closed"
    await eventually(lambda: stack.execute(query, run=run_of(reading)), "closed stream")


def everything(stack: Stack, readings: Sequence[Reading]) -> dict[str, Any]:
    """Every row but those of the workers, and all that Redis has of these streams."""
    rows = {table: stack.execute(f"SELECT * FROM {table} ORDER BY {key}") for table, key in TABLES.items()}
    streams = {reading.stream_id: f"{stack.backing.prefix}:stream:{reading.stream_id}" for reading in readings}
    frames = {
        stream_id: (stack.redis.xrange(key), stack.redis.hgetall(f"{key}:meta")) for stream_id, key in streams.items()
    }
    return {**rows, "frames": frames}
