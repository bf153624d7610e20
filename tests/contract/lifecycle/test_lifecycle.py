"""A run's life at random: callers, workers that live, die and wake again, one call after the other and two at once.

What each call says and what it leaves in the rows is what a model without rows says (`lifecycle_model.py`); and
whatever happened, the rows hold what `docs/run-states.md` and ARCHITECTURE.md promise.
"""

import asyncio
import contextlib
import copy
import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import pytest
import sqlalchemy as sa
from hypothesis import note
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)
from tests.contract.execution.worker import GUARD_S, empty
from tests.contract.lifecycle.lifecycle_calls import (
    REFUSED,
    Beat,
    Bury,
    Call,
    Cancel,
    Claim,
    GiveBack,
    Hand,
    Retract,
    Send,
    SendAgain,
    ends,
    writes,
)
from tests.contract.lifecycle.lifecycle_model import Invocation as ModelInvocation
from tests.contract.lifecycle.lifecycle_model import Model, Outcome
from tests.contract.lifecycle.lifecycle_model import Run as ModelRun
from tests.contract.store import states
from tests.databases import blocking_engine
from tests.hypothesis_profiles import search
from tests.standin import validate_transcript

from runyard.blocks import call_ids, text_of
from runyard.db.engine import Database
from runyard.db.limits import NO_LIMITS, Limits
from runyard.db.records import Call as CallRow
from runyard.db.records import Input, Invocation, Message, Run
from runyard.db.tables import agent_calls, agent_inputs, agent_invocations, agent_messages, agent_runs
from runyard.db.workers import Registration, register
from runyard.ids import WorkerId
from runyard.lifecycle.new_turn import NewTurn
from runyard.priorities import Priority
from runyard.runs import BUSY, SETTLED, TRANSITIONS, CallState, RunStatus
from runyard.transcript import request_messages

T = TypeVar("T")

RUNS_MAX = 2
WORKERS_MAX = 3
DICE = st.lists(st.integers(0, 999), min_size=4, max_size=4)
"""What is thrown never depends on what has happened: two things at once come to one thing or the other."""

Dice = Sequence[int]

LIMITS = (NO_LIMITS, Limits(per_user=1, per_tenant=1, per_agent={"researcher": 1}))

CHANGES = {(before, after) for (before, _), after in TRANSITIONS.items()}


@dataclass(frozen=True, kw_only=True)
class Rows:
    """All of the database that belongs to runs, at one moment."""

    runs: dict[str, Run] = field(default_factory=dict)
    invocations: dict[str, Invocation] = field(default_factory=dict)
    inputs: dict[str, Input] = field(default_factory=dict)
    messages: dict[str, list[Message]] = field(default_factory=dict)
    calls: list[CallRow] = field(default_factory=list)

    @classmethod
    async def load(cls, connection: Any) -> "Rows":
        async def rows(table: sa.Table, *order: Any) -> list[dict[str, Any]]:
            return [dict(row._mapping) for row in await connection.execute(sa.select(table).order_by(*order))]

        messages: dict[str, list[Message]] = {}
        for row in await rows(agent_messages, agent_messages.c.run_id, agent_messages.c.seq):
            messages.setdefault(row["run_id"], []).append(Message(**row))
        return cls(
            runs={row["id"]: Run(**row) for row in await rows(agent_runs)},
            invocations={row["id"]: Invocation(**row) for row in await rows(agent_invocations)},
            inputs={row["id"]: Input(**row) for row in await rows(agent_inputs, agent_inputs.c.position)},
            messages=messages,
            calls=[CallRow(**row) for row in await rows(agent_calls)],
        )

    def of(self, run: Run) -> list[Invocation]:
        return [invocation for invocation in self.invocations.values() if invocation.run_id == run.id]


@dataclass(kw_only=True)
class World:
    """The databases of two processes, and the event loop that their work runs on."""

    runner: asyncio.Runner
    url: str
    database: Database
    rival: Database

    def perform(self, *calls: Call) -> list[Outcome]:
        """One call, or two at the same time."""

        async def perform() -> list[Outcome]:
            databases = (self.database, self.rival)
            async with asyncio.timeout(GUARD_S):
                return await asyncio.gather(
                    *(call.perform(database) for call, database in zip(calls, databases, strict=False))
                )

        return self.runner.run(perform())

    def rows(self) -> Rows:
        return self.runner.run(self.database.read(Rows.load))

    def contents(self) -> dict[str, list[str]]:
        return self.runner.run(states.contents(self.database))


@contextlib.contextmanager
def world_on(url: str) -> Iterator[World]:
    with asyncio.Runner() as runner:

        async def opened() -> World:
            database, rival = Database(url, pool_size=4), Database(url, pool_size=4)
            return World(runner=runner, url=url, database=database, rival=rival)

        world = runner.run(opened())
        yield world
        runner.run(world.database.close())
        runner.run(world.rival.close())


class Lifecycle(RuleBasedStateMachine):
    def __init__(self, world: World) -> None:
        super().__init__()
        world.runner.run(world.database.write(empty))
        self.world = world
        self.model = Model()
        self.rows = Rows()
        self.turns: list[NewTurn] = []
        self.beats: dict[WorkerId, int] = {}
        self.hands: list[Hand] = []
        self.gone: set[str] = set()
        """Inputs that a caller was told are dropped, or that were taken back."""
        self.burials: Counter[str] = Counter()
        self.numbers = itertools.count(1)

    @initialize()
    def a_run_and_a_worker(self) -> None:
        self.a_worker_starts()
        self.happens(Send(turn=self.new_turn()))

    # What can happen --------------------------------------------------------------------------------------------

    @rule(dice=DICE)
    def a_caller_calls(self, dice: Dice) -> None:
        self.happens(pick(iter(dice), self.callers()))

    @rule(dice=DICE)
    def a_call_is_sent_again(self, dice: Dice) -> None:
        known = {item.id for run in self.model.runs.values() for item in run.inputs}
        if again := [SendAgain(turn=turn) for turn in self.turns if turn.input_id in known]:
            self.happens(pick(iter(dice), again))

    @rule()
    def a_worker_starts(self) -> None:
        if len(self.model.workers) == WORKERS_MAX:
            return
        worker = WorkerId(f"wk_{next(self.numbers)}")
        registration = Registration(worker_id=worker, host="host-1", slots=4, queues=("default",), manifests={})
        with blocking_engine(self.world.url) as engine, engine.begin() as connection:
            register(connection, registration)
        self.beats[worker] = 0
        self.model.workers.add(worker)

    @rule(dice=DICE)
    def a_worker_claims(self, dice: Dice) -> None:
        if self.queued():
            throw = iter(dice)
            self.happens(self.claim(pick(throw, [*sorted(self.model.workers) * 2, *self.beats]), pick(throw, LIMITS)))
        else:
            self.a_caller_calls(dice)

    @rule(dice=DICE)
    def a_worker_goes_on(self, dice: Dice) -> None:
        self.goes_on(dice, self.holding())

    @rule(dice=DICE)
    def a_worker_that_lost_its_run_goes_on(self, dice: Dice) -> None:
        self.goes_on(dice, self.zombies())

    def goes_on(self, dice: Dice, hands: Sequence[Hand]) -> None:
        if hands:
            throw = iter(dice)
            self.happens(pick(throw, writes(pick(throw, hands), self.model, self.numbers)))

    @rule(dice=DICE)
    def a_worker_beats(self, dice: Dice) -> None:
        worker = pick(iter(dice), list(self.beats))
        self.happens(Beat(worker=worker))
        self.beats[worker] += worker in self.model.workers

    @rule(dice=DICE)
    def a_worker_is_buried(self, dice: Dice) -> None:
        throw = iter(dice)
        self.happens(self.bury(pick(throw, list(self.beats)), pick(throw, [0, 0, 1])))

    @rule(dice=DICE)
    def two_things_happen_at_once(self, dice: Dice) -> None:
        """They come to what they come to one after the other, in one order or the other."""
        throw = iter(dice)
        first = pick(throw, self.callers())
        self.happen_at_once(first, pick(throw, self.callers() if next(throw) % 3 == 0 else self.of_the_fleet(throw)))

    def queued(self) -> list[ModelRun]:
        return [run for run in self.model.runs.values() if run.status is RunStatus.QUEUED]

    def holding(self) -> list[Hand]:
        return [hand for hand in self.hands if self.model.held(hand.run_id, hand.generation) is not None]

    def zombies(self) -> list[Hand]:
        """Those whose runs others run by now come first."""
        lost = [hand for hand in self.hands if self.model.held(hand.run_id, hand.generation) is None]
        replaced = [hand for hand in lost if self.model.runs[hand.run_id].status is RunStatus.RUNNING]
        return replaced or lost

    def of_the_fleet(self, throw: Iterator[int]) -> list[Call]:
        possible: list[Call] = [self.bury(worker, 0) for worker in self.beats]
        if len(self.queued()) < RUNS_MAX:  # a claim passes by what is locked: of two it may take the second best
            possible += [self.claim(worker, limits) for worker in self.beats for limits in LIMITS]
        if hands := self.holding() or self.hands:
            possible += 2 * writes(pick(throw, hands), self.model, self.numbers)
        return possible

    def callers(self) -> list[Call]:
        possible: list[Call] = []
        if len(self.model.runs) < RUNS_MAX:
            possible.append(Send(turn=self.new_turn()))
        for run in self.model.runs.values():
            busy = ("steer", "steer", "reject", "cancel") if run.status in BUSY else ("steer",)
            possible += [
                Send(turn=self.new_turn(continues=run.id, if_busy=if_busy, priority=priority))
                for if_busy, priority in zip(busy, itertools.cycle(Priority), strict=False)
            ]
            named = (None, *[*run.invocations][-2:])
            possible += [Cancel(run_id=run.id, invocation_id=name, at=self.at()) for name in named]
            possible += [Retract(run_id=run.id, input_id=item.id) for item in run.inputs[-3:]]
        return possible

    def new_turn(self, **changes: Any) -> NewTurn:
        number = next(self.numbers)
        return states.new_turn(
            run_id=f"run_{number}",
            invocation_id=f"inv_{number}",
            input_id=f"in_{number}",
            stream_id=f"st_{number}",
            content=f"input {number}.",
            at=self.at(),
            **changes,
        )

    def at(self) -> int:
        return states.AT + next(self.numbers)

    def claim(self, worker: WorkerId, limits: Limits = NO_LIMITS) -> Claim:
        return Claim(worker=worker, limits=limits, hands=self.hands, at=self.at())

    def bury(self, worker: WorkerId, age: int) -> Bury:
        return Bury(worker=worker, seen_beat=self.beats[worker] - age, is_present_beat=age == 0)

    # What comes of it -------------------------------------------------------------------------------------------

    def happens(self, call: Call) -> None:
        expected = call.predict(self.model)
        changes_nothing = expected[0] == REFUSED or isinstance(call, SendAgain)
        before = self.world.contents() if changes_nothing else None
        (outcome,) = self.world.perform(call)
        assert outcome == expected, call
        self.heed(call, outcome)
        self.look()
        self.compare(self.model)
        if changes_nothing:
            assert self.world.contents() == before, f"{call} was refused"

    def happen_at_once(self, first: Call, second: Call) -> None:
        outcomes = self.world.perform(first, second)
        self.look(transactions=2)
        complaints = []
        for order in ((0, 1), (1, 0)):
            model = copy.deepcopy(self.model)
            try:
                for place in order:
                    assert outcomes[place] == (first, second)[place].predict(model)
                self.compare(model)
            except (AssertionError, KeyError, StopIteration) as complaint:
                complaints.append(complaint)
            else:
                self.model = model
                self.heed(first, outcomes[0])
                self.heed(second, outcomes[1])
                return
        raise AssertionError(f"{first} and {second} came to {outcomes}", complaints)

    def heed(self, call: Call, outcome: Outcome) -> None:
        match call, outcome:
            case Send(turn=turn), (("accepted" | "accepted next" | "steers"), *_):
                self.turns.append(turn)
            case Retract(), ("retracted", input_id):
                self.gone.add(input_id)
            case Cancel(), ("cancelled", *dropped):
                self.gone.update(dropped)
            case Cancel(), ("settled", _, *dropped):
                self.gone.update(dropped)
            case Bury(), ("buried", *run_ids):
                self.burials.update(run_ids)

    def look(self, transactions: int = 1) -> None:
        """The rows as they are now; what no step may do is seen by comparing them with those before it."""
        before, self.rows = self.rows, self.world.rows()
        for run in self.rows.runs.values():
            if (was := before.runs.get(run.id)) is not None:
                check_change(was, run, transactions)
        for invocation in before.invocations.values():
            if invocation.settled_at is not None:
                assert self.rows.invocations[invocation.id] == invocation, "an invocation ends once"
        for run_id, messages in before.messages.items():
            assert self.rows.messages[run_id][: len(messages)] == messages, "what is stored is not edited"
        for item in before.inputs.values():
            if item.folded_in_seq is not None:
                assert self.rows.inputs[item.id] == item

    def compare(self, model: Model) -> None:
        assert {run.id: head(run) for run in self.rows.runs.values()} == {
            run.id: model_head(run) for run in model.runs.values()
        }
        for run in model.runs.values():
            stored = [item for item in self.rows.inputs.values() if item.run_id == run.id]
            assert [(item.id, item.invocation_id, item.folded_in_seq is not None) for item in stored] == [
                (item.id, item.invocation, item.folded) for item in run.inputs
            ]
        assert {each.id: fate(each) for each in self.rows.invocations.values()} == {
            name: model_fate(run, name, each) for run in model.runs.values() for name, each in run.invocations.items()
        }

    # What always holds ------------------------------------------------------------------------------------------

    @invariant()
    def promises_are_kept(self) -> None:
        self.a_worker_is_named_while_it_runs()
        self.each_input_is_read_once_or_waits_or_is_told_of()
        self.a_run_in_progress_has_one_invocation_and_at_most_one_behind_it()
        self.deaths_are_counted_by_burials()
        self.what_is_settled_can_be_sent()

    def a_worker_is_named_while_it_runs(self) -> None:
        for run in self.rows.runs.values():
            assert (run.worker_id is not None) == (run.status is RunStatus.RUNNING)

    def each_input_is_read_once_or_waits_or_is_told_of(self) -> None:
        transcripts = {run_id: " ".join(map(words, rows)) for run_id, rows in self.rows.messages.items()}
        for turn in self.turns:
            run_id = turn.continues or turn.run_id
            count = transcripts.get(run_id, "").split().count(turn.content.split()[1])
            item = self.rows.inputs.get(turn.input_id)
            if item is None:
                assert turn.input_id in self.gone, f"{turn.input_id} is lost"
                assert count == 0
            elif item.folded_in_seq is None:
                assert count == 0
                self.check_waits(item)
            else:
                assert count == 1
                row = self.rows.messages[run_id][item.folded_in_seq - 1]
                assert (row.role, row.seq) == ("user", item.folded_in_seq)
                assert turn.content in words(row)

    def check_waits(self, item: Input) -> None:
        """For its own invocation, or as one that the failed invocation before has listed."""
        invocation = self.rows.invocations[item.invocation_id]
        if invocation.settled_at is not None:
            assert invocation.result is not None
            assert item.id in [each["id"] for each in invocation.result["unanswered"]]

    def a_run_in_progress_has_one_invocation_and_at_most_one_behind_it(self) -> None:
        for run in self.rows.runs.values():
            unsettled = [invocation for invocation in self.rows.of(run) if invocation.settled_at is None]
            for invocation in self.rows.of(run):
                assert (invocation.settled_at is None) == (invocation.result is None)
                assert (invocation.status in SETTLED) == (invocation.settled_at is not None)
            if run.status in SETTLED:
                assert unsettled == []
                assert not run.cancel_requested
            else:
                assert run.invocation_id in [invocation.id for invocation in unsettled]
                assert len(unsettled) <= 2

    def deaths_are_counted_by_burials(self) -> None:
        for run in self.rows.runs.values():
            assert sum(len(invocation.deaths) for invocation in self.rows.of(run)) == self.burials[run.id]

    def what_is_settled_can_be_sent(self) -> None:
        for run in self.rows.runs.values():
            rows = self.rows.messages.get(run.id, [])
            assert [row.seq for row in rows] == list(range(1, run.last_seq + 1))
            if run.status in SETTLED:
                validate_transcript(request_messages(rows))
                asked = [call_id for row in rows if row.role == "assistant" for call_id in call_ids(row.content)]
                assert asked == [block["tool_use_id"] for row in rows for block in results(row)], "open calls"
                ledger = [call.state for call in self.rows.calls if call.run_id == run.id]
                assert ledger == [CallState.FINISHED] * len(asked)

    def teardown(self) -> None:
        """Whatever was done, a fleet that goes on leaves nothing behind."""
        if self.model.runs:
            if not self.model.workers:
                self.a_worker_starts()
            for hand in self.holding():
                self.happens(GiveBack(hand=hand, sent=None))
            worker = WorkerId(min(self.model.workers))
            while any(run.status in BUSY for run in self.model.runs.values()):
                self.happens(self.claim(worker))
                self.happens(ends(self.hands[-1]))
                self.promises_are_kept()


def pick(throw: Iterator[int], possible: Sequence[T]) -> T:
    """One of what may happen now."""
    found = possible[next(throw) % len(possible)]
    note(f"  {found}")
    return found


def check_change(before: Run, after: Run, transactions: int) -> None:
    """The table has a way, with one event a transaction (a queued run that is replaced stays queued)."""
    reachable = {before.status}
    for _ in range(transactions):
        reachable |= {to for come_from, to in CHANGES if come_from in reachable}
    assert after.status in reachable, (before.status, after.status)
    assert 0 <= after.generation - before.generation <= transactions


def head(run: Run) -> tuple[Any, ...]:
    return (
        *(run.status, run.worker_id, run.generation, run.invocation_id, run.cancel_requested),
        *(run.priority, run.rank if run.status is RunStatus.QUEUED else None),
    )


def model_head(run: ModelRun) -> tuple[Any, ...]:
    return (
        *(run.status, run.worker, run.generation, run.current, run.is_cancelled),
        *(run.priority, run.rank if run.status is RunStatus.QUEUED else None),
    )


def fate(invocation: Invocation) -> tuple[Any, ...]:
    unanswered = (invocation.result or {}).get("unanswered", [])
    return (
        invocation.status,
        invocation.started_at is not None,
        invocation.deaths,
        [item["id"] for item in unanswered],
        invocation.error is not None,
    )


def model_fate(run: ModelRun, name: str, invocation: ModelInvocation) -> tuple[Any, ...]:
    status = invocation.ended or (run.status if run.current == name else RunStatus.QUEUED)
    failed = invocation.ended is RunStatus.FAILED
    return (status, invocation.has_begun, invocation.deaths, invocation.unanswered, failed)


def words(row: Message) -> str:
    return text_of(row.content) if isinstance(row.content, str) else " ".join(text_of([block]) for block in row.content)


def results(row: Message) -> list[dict[str, Any]]:
    if row.role != "user" or isinstance(row.content, str):
        return []
    return [block for block in row.content if block["type"] == "tool_result"]


@pytest.mark.timeout(0)  # a long search takes its time, and each call of it has a guard
def test_whatever_happens_to_a_run(database_url: str) -> None:
    examples = 25 if database_url.startswith("sqlite") else 10
    with world_on(database_url) as world:
        run_state_machine_as_test(lambda: Lifecycle(world), settings=search(examples=examples, steps=30))
