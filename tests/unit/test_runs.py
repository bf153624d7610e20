"""The table of transitions: against a model that knows no table, and against its drawing."""

import re
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from runyard.runs import BUSY, SETTLED, TRANSITIONS, IllegalTransitionError, RunEvent, RunStatus, after

DRAWING = (Path(__file__).parents[2] / "docs/run-states.md").read_text()


@dataclass
class Conversation:
    """What a run is about: work to do, somebody who does it, a question to a person, an ending."""

    has_work: bool = False
    has_worker: bool = False
    has_question: bool = False
    ending: RunStatus | None = None

    @property
    def status(self) -> RunStatus:
        if self.has_worker:
            return RunStatus.RUNNING
        if self.has_question:
            return RunStatus.WAITING
        if self.has_work:
            return RunStatus.QUEUED
        return self.ending or RunStatus.IDLE

    def allows(self, event: RunEvent) -> bool:
        match event:
            case RunEvent.TURN:
                return not self.has_work
            case RunEvent.CLAIM:
                return self.has_work and not self.has_worker and not self.has_question
            case RunEvent.REPLACE:
                return self.has_worker or self.has_question
            case RunEvent.CANCEL:
                return self.has_work or self.ending is None
            case RunEvent.GIVE_BACK | RunEvent.COMPLETE | RunEvent.FAIL | RunEvent.PARK:
                return self.has_worker
            case RunEvent.DECIDE | RunEvent.EXPIRE:
                return self.has_question

    def apply(self, event: RunEvent) -> None:
        """Whatever happens ends the hold on the run; what follows depends on the event."""
        self.has_worker = event is RunEvent.CLAIM
        self.has_question = event is RunEvent.PARK
        match event:
            case RunEvent.COMPLETE:
                self._end(RunStatus.COMPLETED)
            case RunEvent.FAIL | RunEvent.EXPIRE:
                self._end(RunStatus.FAILED)
            case RunEvent.CANCEL:
                self._end(RunStatus.CANCELLED)
            case _:
                self.has_work, self.ending = True, None

    def _end(self, status: RunStatus) -> None:
        self.has_work, self.ending = False, status


class Lifecycle(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.model = Conversation()
        self.status = RunStatus.IDLE

    @rule(event=st.sampled_from(RunEvent))
    def happens(self, event: RunEvent) -> None:
        if self.model.allows(event):
            self.status = after(self.status, event)
            self.model.apply(event)
        else:
            with pytest.raises(IllegalTransitionError):
                after(self.status, event)

    @invariant()
    def agrees_with_the_model(self) -> None:
        assert self.status is self.model.status
        assert (self.status in SETTLED) == (self.model.ending is not None)
        assert (self.status in BUSY) == (self.model.has_work and not self.model.has_question)


TestLifecycle = Lifecycle.TestCase


@pytest.mark.parametrize(("status", "event"), sorted(set(product(RunStatus, RunEvent)) - set(TRANSITIONS)))
def test_what_is_not_in_the_table_is_refused(status: RunStatus, event: RunEvent) -> None:
    with pytest.raises(IllegalTransitionError, match=f"^a run that is {status} cannot {event}$") as caught:
        after(status, event)
    assert (caught.value.status, caught.value.event) == (status, event)


def test_every_state_and_event_is_used() -> None:
    assert {status for status, _ in TRANSITIONS} == set(RunStatus)
    assert {event for _, event in TRANSITIONS} == set(RunEvent)
    assert set(TRANSITIONS.values()) == set(RunStatus) - {RunStatus.IDLE}, "a run is idle only before its first turn"


def test_the_diagram_draws_the_table() -> None:
    arrows = re.findall(r"^    (\w+) --> (\w+): (\w+)$", DRAWING, re.MULTILINE)
    assert [((source, event), target) for source, target, event in arrows] == list(TRANSITIONS.items())


def test_the_page_explains_the_table() -> None:
    rows = re.findall(r"^\| (\w+) \| (\w+) \| (\w+) \| (.+) \|$", DRAWING, re.MULTILINE)[1:]
    assert [((source, event), target) for source, event, target, _ in rows] == list(TRANSITIONS.items())
