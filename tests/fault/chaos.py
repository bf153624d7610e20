"""Runs with tools while one worker after another is killed, and what is true at the end: `make chaos` shows it.

What happens when is drawn from a seed: when each run begins, how long its steps take, when its reader moves to which
gateway, which worker dies. How far each had come by then the machine decides.
"""

import asyncio
import random
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.clients.answer import is_terminal
from tests.clients.api import Api, Reading
from tests.fault.accounts import Account, account_of
from tests.fault.crew import Crew
from tests.fault.readers import is_whole, moved, run_of
from tests.fault.soundness import unsound
from tests.integration.stack import Stack
from tests.standin import Answer, InvalidTranscript, pause, says, thinks

from runyard.clock import now_ms

GUARD_S = 120.0
"""For a reader's next event: a run may lose one worker after another before it goes on."""

EVENTS_AT_A_GATEWAY = (5, 60)
"""After so many at least, and at most, a reader moves."""

Tell = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class Plan:
    """So many runs begin within so many seconds; until all have ended, one worker is killed now and then, `kills` at
    most.
    """

    seed: int
    runs: int = 100
    within_s: float = 120.0
    kill_every_s: float = 5.0
    kills: int | None = None
    workers: int = 3


@dataclass(frozen=True, kw_only=True)
class Story:
    """A run of three model calls and four tool calls, two of which must not happen twice."""

    number: int
    begins_s: float
    script: tuple[Answer, ...]
    text: str
    """What its reader must have in hand at the end."""

    @property
    def input(self) -> str:
        return f"<run {self.number}>"


@dataclass(frozen=True, kw_only=True)
class Outcome:
    plan: Plan
    killed: int
    """Workers."""
    moves: int
    """Of readers, from one gateway to another or back to the same."""
    ends: dict[str, int]
    """Runs by their status."""
    take_overs: int
    once: int
    """Calls that must not happen twice."""
    interrupted: int
    """Of those, the ones of which the model was told that they may have acted."""
    repeated: int
    lost: int
    """Of those, the ones that never acted although their result says so."""
    invalid_transcripts: list[str]
    unequal_readers: list[str]
    """Runs whose readers got another text than the transcript's, not one terminal frame, or a hole."""
    unsound: list[str]
    """What `runyard fsck` finds, in its lines."""

    @property
    def faults(self) -> list[str]:
        """What is not as promised."""
        wanted = {
            "runs did not complete": self.ends != {"completed": self.plan.runs},
            "calls were repeated": self.repeated,
            "calls were lost": self.lost,
            "transcripts are invalid": self.invalid_transcripts,
            "readers have another text": self.unequal_readers,
            "fsck finds something": self.unsound,
        }
        return [fault for fault, happened in wanted.items() if happened]


@dataclass(kw_only=True)
class Telling:
    """What the readers were told, by the runs' ids, each when it was read to its end."""

    readings: dict[str, tuple[Story, Reading]] = field(default_factory=dict)
    moves: int = 0


async def chaos(stack: Stack, crew: Crew, plan: Plan, tell: Tell) -> Outcome:
    """Needs two gateways; brings its workers."""
    chance = random.Random(plan.seed)
    stories = [story(number, plan, chance) for number in range(plan.runs)]
    for each in stories:
        stack.standin.answers(*each.script, by="turn", contains=each.input)
    await crew.join(plan.workers)
    began_s, began_ms = time.monotonic(), now_ms()
    telling, ended = Telling(), asyncio.Event()
    homes = [gateway.user("reader") for gateway in stack.gateways]

    def count() -> str:
        return f"{time.monotonic() - began_s:4.0f} s: {len(telling.readings)} of {plan.runs} runs have ended"

    def tell_death() -> None:
        tell(f"{count()}, a worker is killed")

    async with asyncio.TaskGroup() as tasks:
        killing = tasks.create_task(kill_workers(crew, plan, chance, ended, tell_death))
        async with asyncio.TaskGroup() as readers:
            for each in stories:
                readers.create_task(follow(each, homes, random.Random(f"{plan.seed} {each.number}"), telling))
        ended.set()
    tell(count())
    return await outcome(stack, homes[0], plan, telling, killed=killing.result(), since_ms=began_ms)


def story(number: int, plan: Plan, chance: random.Random) -> Story:
    def spoken(text: str) -> list[Any]:
        """Word by word, each after a while."""
        return [piece for word in text.split(" ") for piece in (pause(chance.uniform(50, 250)), f"{word} ")]

    def paid(part: str) -> dict[str, Any]:
        return {"order": f"{number}-{part}", "seconds": chance.uniform(0.5, 1.5)}

    texts = (
        f"I begin with the first order of run {number}.",
        "Then comes the other one.",
        f"Both orders of run {number} are paid,\r\nand nobody has to pay for any of them once more.\n",
    )
    look = {"order": f"{number}"}
    first = thinks("Two orders, ", "one by one.").says(*spoken(texts[0])).calls("pay", paid("a")).calls("balance", look)
    second = says(*spoken(texts[1])).calls("balance", look).calls("pay", paid("b"))
    return Story(
        number=number,
        begins_s=chance.uniform(0, plan.within_s),
        script=(first, second, says(*spoken(texts[2]))),
        text="".join(f"{text} " for text in texts),
    )


async def kill_workers(
    crew: Crew, plan: Plan, chance: random.Random, ended: asyncio.Event, tell: Callable[[], None]
) -> int:
    """How many were killed, each replaced at once. On a machine that needs longer for that, the next one dies later."""
    killed, joined_in_s = 0, 0.0
    while killed != plan.kills and not await happens(ended, within_s=plan.kill_every_s - joined_in_s):
        crew.kill(chance.choice([worker for worker in crew.workers if worker.exit_code is None]))
        tell()
        killed += 1
        killed_s = time.monotonic()
        await crew.join()
        joined_in_s = time.monotonic() - killed_s
    return killed


async def happens(event: asyncio.Event, *, within_s: float) -> bool:
    try:
        async with asyncio.timeout(within_s):
            return await event.wait()
    except TimeoutError:
        return False


async def follow(story: Story, homes: list[Api], chance: random.Random, telling: Telling) -> None:
    """Begin a run in its time, and read its answer to the end, a while here, a while there."""
    await asyncio.sleep(story.begins_s)
    async with chance.choice(homes).streaming("teller", story.input) as reading:
        run_id = run_of(reading)
        has_ended = await read(reading, chance)
    while not has_ended:
        telling.moves += 1
        async with moved(reading, chance.choice(homes)) as reading:
            has_ended = await read(reading, chance)
    telling.readings[run_id] = (story, reading)


async def read(reading: Reading, chance: random.Random) -> bool:
    """Read on for a while; whether the answer has ended."""
    for _ in range(chance.randint(*EVENTS_AT_A_GATEWAY)):
        event = await reading.next(guard_s=GUARD_S)
        if event is None:
            return False
        if is_terminal(event):
            await reading.rest()  # nothing comes behind it: who counts the terminal frames will see
            return True
    return False


async def outcome(stack: Stack, api: Api, plan: Plan, telling: Telling, *, killed: int, since_ms: int) -> Outcome:
    statuses = dict(stack.execute("SELECT id, status FROM agent_runs"))
    accounts: dict[str, Account] = {}
    invalid, unequal = list(stack.standin.unexpected), []
    for run_id, (told, reading) in telling.readings.items():
        try:
            accounts[run_id] = await account_of(stack, api, run_id)
        except InvalidTranscript as refusal:
            invalid.append(f"{run_id}: {refusal.message}")
        else:
            if not (is_whole(reading) and reading.text == accounts[run_id].text == told.text):
                unequal.append(run_id)
    once = [call for account in accounts.values() for call in account.once()]
    return Outcome(
        plan=plan,
        killed=killed,
        moves=telling.moves,
        ends=Counter(statuses[run_id] for run_id in telling.readings),
        take_overs=sum(len(account.deaths) for account in accounts.values()),
        once=len(once),
        interrupted=sum(call.is_interrupted for call in once),
        repeated=sum(call.is_repeated for call in once),
        lost=sum(call.is_lost for call in once),
        invalid_transcripts=invalid,
        unequal_readers=unequal,
        unsound=await unsound(stack, since_ms=since_ms),
    )
