"""A fleet of watchers in simulated time: nobody who lives is ever taken for dead, and every dead one is found.

Workers join, die (many at once too) and freeze, the database goes away; each round comes a little late, as on a busy
machine.
"""

import random
from dataclasses import dataclass

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from tests.fakes.workers_table import FakeWorkersTable

from runyard.ids import WorkerId
from runyard_workers.ring import CHANGED_WITHIN_S, DEAD_AFTER_S, Ring, following_around

ROUND_S = 1.0
LATE_S = 0.5
"""A round begins at most so much too late."""

ROUNDS_A_BEAT = 2
FOUND_AFTER_S = CHANGED_WITHIN_S + DEAD_AFTER_S + 3 * (ROUND_S + LATE_S)
"""Silence until the view reaches past it, the watching, and the rounds in which either is noticed."""


@dataclass(eq=False)
class Member:
    worker_id: WorkerId
    ring: Ring
    next_round_at: float
    rounds: int = 0


class Fleet:
    """What the beat's thread does in every process, one round after another; the table belongs to all."""

    def __init__(self) -> None:
        self.table = FakeWorkersTable()
        self.members: list[Member] = []
        self.silent: set[WorkerId] = set()
        """The dead and the frozen: nobody else may be buried."""
        self._ids = random.Random(0)

    def join(self) -> None:
        self.members.append(Member(self._register(), Ring(self.table.clock), self.table.now + ROUND_S))

    def kill(self, member: Member) -> None:
        self.members.remove(member)
        self.silent.add(member.worker_id)

    def freeze(self, member: Member, seconds: float) -> None:
        member.next_round_at += seconds
        self.silent.add(member.worker_id)

    def lose_database(self, seconds: float) -> None:
        self.table.now += seconds
        for member in self.members:
            member.next_round_at += seconds

    def run_for(self, seconds: float, chance: random.Random) -> None:
        end = self.table.now + seconds
        while (member := min(self.members, key=lambda each: each.next_round_at)).next_round_at <= end:
            self.table.now = member.next_round_at
            self._round(member)
            member.next_round_at += ROUND_S + chance.uniform(0, LATE_S)
        self.table.now = end

    def _round(self, member: Member) -> None:
        member.rounds += 1
        if member.rounds % ROUNDS_A_BEAT == 0:
            self._beat(member)
        for worker_id, beat in member.ring.look_around(following_around(member.worker_id, self.table.following)):
            assert worker_id in self.silent, f"{member.worker_id} takes {worker_id} for dead"
            if self.table.beats.get(worker_id) == beat:
                del self.table.beats[worker_id]

    def _beat(self, member: Member) -> None:
        if member.worker_id in self.table.beats:
            self.table.beat([member.worker_id])
            self.silent.discard(member.worker_id)
        else:
            member.ring.forget()
            member.worker_id = self._register()

    def _register(self) -> WorkerId:
        worker_id = WorkerId(f"{self._ids.getrandbits(64):016x}")
        self.table.beats[worker_id] = 0
        return worker_id


class FleetModel(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.fleet = Fleet()
        self.calm_since = 0.0

    def disturb(self) -> None:
        """Calm begins when all are awake and have shown it."""
        awake_at = max(member.next_round_at for member in self.fleet.members)
        self.calm_since = awake_at + ROUNDS_A_BEAT * (ROUND_S + LATE_S)

    @initialize(count=st.integers(1, 10))
    def begins(self, count: int) -> None:
        for _ in range(count):
            self.joins()

    @rule()
    def joins(self) -> None:
        self.fleet.join()
        self.disturb()

    @rule(chance=st.randoms(use_true_random=False))
    def some_die(self, chance: random.Random) -> None:
        for member in chance.sample(self.fleet.members, chance.randrange(len(self.fleet.members))):
            self.fleet.kill(member)
        self.disturb()

    @rule(chance=st.randoms(use_true_random=False), seconds=st.integers(1, 30))
    def one_freezes(self, chance: random.Random, seconds: int) -> None:
        """It may be buried meanwhile; when it wakes, what it last saw of the others is old."""
        self.fleet.freeze(chance.choice(self.fleet.members), seconds)
        self.disturb()

    @rule(seconds=st.integers(1, 30))
    def the_database_goes_away(self, seconds: int) -> None:
        """It kills nobody, whoever comes back to it first."""
        self.fleet.lose_database(seconds)
        self.disturb()

    @rule(seconds=st.integers(1, 30), chance=st.randoms(use_true_random=False))
    def time_passes(self, seconds: int, chance: random.Random) -> None:
        self.fleet.run_for(seconds, chance)

    @invariant()
    def every_dead_one_is_found(self) -> None:
        if self.fleet.table.now > self.calm_since + FOUND_AFTER_S:
            assert self.fleet.table.beats.keys() == {member.worker_id for member in self.fleet.members}


TestFleet = FleetModel.TestCase
TestFleet.settings = settings(max_examples=60, stateful_step_count=20)
