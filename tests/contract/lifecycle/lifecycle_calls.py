"""The calls of a run's life as values. Each is applied to the store and to the model, which predicts the outcome."""

import itertools
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from tests.contract.lifecycle.lifecycle_model import Input, Model, Outcome, Run
from tests.contract.store import states
from tests.contract.store.holder import Holder

from runyard.blocks import call_ids
from runyard.db import claims, deaths, inputs, turns
from runyard.db.boundaries import Boundary
from runyard.db.engine import Database
from runyard.db.limits import Limits
from runyard.db.workers import beat
from runyard.errors import AlreadyFolded, GenerationLost, RunBusy, WorkerGone
from runyard.ids import WorkerId
from runyard.lifecycle.accept import commit_turn
from runyard.lifecycle.cancelling import cancel_run
from runyard.lifecycle.new_turn import Accepted, NewTurn
from runyard.priorities import rank_of
from runyard.runs import CallState, RunStatus

REFUSED = "refused"
MOSTLY = 3
"""So much more often a worker goes on with a run than it ends it."""

LOST: Outcome = (REFUSED, "lost")


class Call(Protocol):
    async def perform(self, database: Database) -> Outcome: ...

    def predict(self, model: Model) -> Outcome: ...


# Callers ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Send:
    turn: NewTurn

    def __str__(self) -> str:
        to = self.turn.continues or "a new run"
        return f"send {self.turn.input_id} to {to}: {self.turn.if_busy}, {self.turn.priority}"

    async def perform(self, database: Database) -> Outcome:
        try:
            return _went(self.turn, await commit_turn(database, self.turn))
        except RunBusy as refusal:
            return (REFUSED, refusal.code)

    def predict(self, model: Model) -> Outcome:
        turn = self.turn
        rank = rank_of(turn.priority, turn.at)
        opening = Input(id=turn.input_id, invocation=turn.invocation_id, opens=True, rank=rank)
        return model.send(turn.continues or turn.run_id, opening, turn.priority, turn.if_busy)


@dataclass(frozen=True, kw_only=True)
class SendAgain:
    """The same call, whose commit had an unknown outcome."""

    turn: NewTurn

    def __str__(self) -> str:
        return f"send {self.turn.input_id} again"

    async def perform(self, database: Database) -> Outcome:
        return _went(self.turn, await commit_turn(database, self.turn))

    def predict(self, model: Model) -> Outcome:
        turn = self.turn
        return model.send_again(turn.continues or turn.run_id, turn.invocation_id, turn.input_id)


def _went(turn: NewTurn, accepted: Accepted) -> Outcome:
    if accepted.is_steering:
        return ("steers", accepted.invocation_id)
    assert (accepted.invocation_id, accepted.stream_id) == (turn.invocation_id, turn.stream_id)
    return ("accepted next" if accepted.waits_for_end else "accepted", accepted.invocation_id)


@dataclass(frozen=True, kw_only=True)
class Retract:
    run_id: str
    input_id: str

    async def perform(self, database: Database) -> Outcome:
        try:
            found = await database.write(inputs.retract_input, self.run_id, states.OWNER, self.input_id)
        except AlreadyFolded as refusal:
            return (REFUSED, refusal.code)
        return (REFUSED, "unknown") if found is None else ("retracted", found.id)

    def predict(self, model: Model) -> Outcome:
        return model.retract(self.run_id, self.input_id)


@dataclass(frozen=True, kw_only=True)
class Cancel:
    """`invocation_id`: what alone it may stop."""

    run_id: str
    invocation_id: str | None
    at: int

    async def perform(self, database: Database) -> Outcome:
        named = {"invocation_id": self.invocation_id, "at": self.at}
        done = await database.write(cancel_run, self.run_id, states.OWNER, **named)
        dropped = [item.id for item in done.dropped]
        if done.ending is not None:
            return ("cancelled", *dropped)
        return ("asked",) if done.status is RunStatus.RUNNING else ("settled", done.status, *dropped)

    def predict(self, model: Model) -> Outcome:
        return model.cancel(self.run_id, self.invocation_id)


# The fleet --------------------------------------------------------------------------------------------------


@dataclass(kw_only=True)
class Hand:
    """A claim and what its worker knows of the run, true for as long as the run is its own."""

    holder: Holder
    states: dict[str, CallState] = field(default_factory=dict)
    """Of the calls that the last turn asks for."""

    @classmethod
    async def of(cls, database: Database, claim: claims.Claim) -> "Hand":
        hand = cls(holder=await Holder.of(database, claim))
        last = hand.holder.rows[-1]
        ledger = await database.read(turns.load_calls, claim.run.id, last.seq)
        hand.holder.calls = call_ids(last.content)
        hand.states = {call.call_id: call.state for call in ledger}
        return hand

    def __str__(self) -> str:
        return f"claim of {self.run_id} at {self.generation}"

    @property
    def run_id(self) -> str:
        return self.holder.claim.run.id

    @property
    def generation(self) -> int:
        return self.holder.claim.run.generation


@dataclass(frozen=True, kw_only=True)
class Claim:
    """`hands` gets the hand on what was claimed. `limits`: of users, of tenants and of the agent alike, or none."""

    worker: WorkerId
    limits: Limits
    hands: list[Hand] = field(repr=False)
    at: int

    async def perform(self, database: Database) -> Outcome:
        try:
            claimed = await states.claim(database, self.worker, at=self.at, limits=self.limits)
        except WorkerGone:
            return (REFUSED, "worker gone")
        if claimed is None:
            return ("nothing queued",)
        self.hands.append(await Hand.of(database, claimed))
        return ("claimed", claimed.run.id, claimed.run.generation)

    def predict(self, model: Model) -> Outcome:
        return model.claim(self.worker, self.limits.per_user)


@dataclass(frozen=True, kw_only=True)
class Bury:
    worker: WorkerId
    seen_beat: int
    is_present_beat: bool

    async def perform(self, database: Database) -> Outcome:
        async def bury(connection: Any) -> list[claims.GivenBack] | None:
            return await connection.run_sync(deaths.bury, self.worker, self.seen_beat)

        given = await database.write(bury)
        return (REFUSED, "not that beat") if given is None else ("buried", *sorted(each.run_id for each in given))

    def predict(self, model: Model) -> Outcome:
        return model.bury(self.worker) if self.is_present_beat else (REFUSED, "not that beat")


@dataclass(frozen=True, kw_only=True)
class Beat:
    worker: WorkerId

    async def perform(self, database: Database) -> Outcome:
        async def show(connection: Any) -> Any:
            return await connection.run_sync(beat, self.worker)

        try:
            own = await database.write(show)
        except WorkerGone:
            return (REFUSED, "worker gone")
        return ("holds", *sorted((run.id, run.generation, run.cancel_requested) for run in own))

    def predict(self, model: Model) -> Outcome:
        if self.worker not in model.workers:
            return (REFUSED, "worker gone")
        own = [run for run in model.runs.values() if run.worker == self.worker]
        return ("holds", *sorted((run.id, run.generation, run.is_cancelled) for run in own))


# Whoever claimed, whether the run is still its own or not ---------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Write:
    """One write with a claim's generation. `does` and `comes_to`: the store's and the model's half of it."""

    name: str
    hand: Hand
    does: Callable[[Holder], Awaitable[Any]]
    comes_to: Callable[[Model, Run], Outcome]
    leaves: dict[str, CallState | None] = field(default_factory=dict)
    """The states of calls afterwards; None: the calls are answered."""

    def __str__(self) -> str:
        return f"{self.hand} {self.name}"

    async def perform(self, database: Database) -> Outcome:
        self.hand.holder.database = database
        try:
            written = await self.does(self.hand.holder)
        except GenerationLost:
            return LOST
        self.hand.states = {
            call_id: state for call_id, state in (self.hand.states | self.leaves).items() if state is not None
        }
        return _passed(written) if isinstance(written, Boundary) else ("done",)

    def predict(self, model: Model) -> Outcome:
        run = model.held(self.hand.run_id, self.hand.generation)
        return LOST if run is None else self.comes_to(model, run)


@dataclass(frozen=True, kw_only=True)
class GiveBack:
    hand: Hand
    sent: int | None

    def __str__(self) -> str:
        return f"{self.hand} gives back"

    async def perform(self, database: Database) -> Outcome:
        given = await database.write(claims.give_back, self.hand.run_id, self.hand.generation, sent=self.sent)
        return LOST if given is None else ("given back",)

    def predict(self, model: Model) -> Outcome:
        run = model.held(self.hand.run_id, self.hand.generation)
        return LOST if run is None else model.give_back(run)


def _passed(boundary: Boundary) -> Outcome:
    if boundary.settlement is None:
        return ("goes on", boundary.cancel_requested)
    after = boundary.replacement
    status = boundary.settlement.result["status"]
    return ("settled", status, None if after is None else after.invocation_id)


def writes(hand: Hand, model: Model, numbers: "itertools.count[int]") -> list[Call]:
    """What this worker may do next: all that the loop would, by what it knows."""
    run = model.held(hand.run_id, hand.generation)
    anything: list[Call] = [
        ends(hand),
        GiveBack(hand=hand, sent=None),
        GiveBack(hand=hand, sent=7),
    ]
    if hand.holder.rows[-1].role == "assistant":
        return [*_on_calls(hand) * MOSTLY, *anything]
    first, second = f"toolu_{next(numbers)}", f"toolu_{next(numbers)}"
    words = f"answer {next(numbers)}"
    planned = {first: CallState.PLANNED, second: CallState.PLANNED}
    progress = [
        _write("asks", hand, lambda holder: holder.asks(first, second), lambda _model, _run: ("done",), planned),
        _write("says", hand, lambda holder: holder.says(words), lambda model, run: model.end(run)),
    ]
    if run is None or run.is_cancelled:
        progress.append(_write("stops", hand, Holder.stops, lambda model, run: model.end(run)))
    return [*progress * MOSTLY, *anything]


def ends(hand: Hand) -> Call:
    """The one write that always ends an invocation."""
    return _write("fails", hand, Holder.fails, lambda model, run: model.fail(run), dict.fromkeys(hand.states))


def _on_calls(hand: Hand) -> list[Call]:
    possible: list[Call] = []
    for index, (call_id, state) in enumerate(hand.states.items()):
        if state is not CallState.FINISHED:
            possible.append(_starts(hand, index, call_id))
        if state is CallState.STARTED:
            possible.append(_finishes(hand, index, call_id))
    if CallState.PLANNED not in hand.states.values():
        answered = dict.fromkeys(hand.states)
        possible.append(_write("answers", hand, Holder.answers, lambda model, run: model.answer(run), answered))
    return possible


def _starts(hand: Hand, index: int, call_id: str) -> Call:
    started: dict[str, CallState | None] = {call_id: CallState.STARTED}
    return _write(
        f"starts {call_id}",
        hand,
        lambda holder: holder.starts(call_id),
        lambda model, run: model.start(run, index, "lookup"),
        started,
    )


def _finishes(hand: Hand, index: int, call_id: str) -> Call:
    finished: dict[str, CallState | None] = {call_id: CallState.FINISHED}
    return _write(
        f"finishes {call_id}",
        hand,
        lambda holder: holder.finishes(call_id),
        lambda model, run: model.finish(run, index),
        finished,
    )


def _write(
    name: str,
    hand: Hand,
    does: Callable[[Holder], Awaitable[Any]],
    comes_to: Callable[[Model, Run], Outcome],
    leaves: dict[str, CallState | None] | None = None,
) -> Call:
    return Write(name=name, hand=hand, does=does, comes_to=comes_to, leaves=leaves or {})
