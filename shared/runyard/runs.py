"""A run's life: its states, and the one table of transitions between them.

`docs/run-states.md` draws the table. Every transition happens in a transaction that holds the run lock
(`runyard.db.locks`): the row is locked and read again before the table is consulted.

Nothing parks a run yet: `waiting`, `park`, `decide` and `expire` are kept for approvals, which are not built.
"""

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType


class RunStatus(StrEnum):
    IDLE = "idle"
    QUEUED = "queued"
    RUNNING = "running"
    WAITING = "waiting"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


class RunEvent(StrEnum):
    """What moves a run from one status to another."""

    TURN = "turn"  # a call brings a new turn
    CLAIM = "claim"  # a worker takes the run: worker_id set, generation + 1
    REPLACE = "replace"  # ifBusy=cancel: settled and enqueued in one transaction
    GIVE_BACK = "give_back"  # hand-over, or the death of its worker: generation + 1
    COMPLETE = "complete"
    FAIL = "fail"
    CANCEL = "cancel"
    PARK = "park"  # a call waits for a person
    DECIDE = "decide"  # every waiting call is decided
    EXPIRE = "expire"  # a waiting call's time is over and its tool's policy is to fail


SETTLED = frozenset({RunStatus.COMPLETED, RunStatus.FAILED, RunStatus.CANCELLED})
"""A settled run has no invocation in progress; a new turn takes it up again."""

BUSY = frozenset({RunStatus.QUEUED, RunStatus.RUNNING})
"""An invocation is in progress or about to be."""

AT_REST = SETTLED | {RunStatus.IDLE}
"""Nobody works on the run, and nobody will without another call."""

TRANSITIONS: Mapping[tuple[RunStatus, RunEvent], RunStatus] = MappingProxyType(
    {
        (RunStatus.IDLE, RunEvent.TURN): RunStatus.QUEUED,
        (RunStatus.COMPLETED, RunEvent.TURN): RunStatus.QUEUED,
        (RunStatus.FAILED, RunEvent.TURN): RunStatus.QUEUED,
        (RunStatus.CANCELLED, RunEvent.TURN): RunStatus.QUEUED,
        (RunStatus.QUEUED, RunEvent.CLAIM): RunStatus.RUNNING,
        (RunStatus.RUNNING, RunEvent.REPLACE): RunStatus.QUEUED,
        (RunStatus.WAITING, RunEvent.REPLACE): RunStatus.QUEUED,
        (RunStatus.IDLE, RunEvent.CANCEL): RunStatus.CANCELLED,
        (RunStatus.QUEUED, RunEvent.CANCEL): RunStatus.CANCELLED,
        (RunStatus.WAITING, RunEvent.CANCEL): RunStatus.CANCELLED,
        (RunStatus.RUNNING, RunEvent.CANCEL): RunStatus.CANCELLED,
        (RunStatus.RUNNING, RunEvent.GIVE_BACK): RunStatus.QUEUED,
        (RunStatus.RUNNING, RunEvent.COMPLETE): RunStatus.COMPLETED,
        (RunStatus.RUNNING, RunEvent.FAIL): RunStatus.FAILED,
        (RunStatus.RUNNING, RunEvent.PARK): RunStatus.WAITING,
        (RunStatus.WAITING, RunEvent.DECIDE): RunStatus.QUEUED,
        (RunStatus.WAITING, RunEvent.EXPIRE): RunStatus.FAILED,
    }
)


class IllegalTransitionError(RuntimeError):
    """A run was asked to do something that its status does not allow: a fault in our code, never a caller's."""

    def __init__(self, status: RunStatus, event: RunEvent) -> None:
        super().__init__(f"a run that is {status} cannot {event}")
        self.status = status
        self.event = event


def after(status: RunStatus, event: RunEvent) -> RunStatus:
    """The status that `event` leads to.

    Raises:
        IllegalTransitionError: the table has no such transition.
    """
    try:
        return TRANSITIONS[status, event]
    except KeyError:
        raise IllegalTransitionError(status, event) from None


class CallState(StrEnum):
    """The state of a tool call in the ledger. Each state is committed before the next thing happens."""

    PLANNED = "planned"  # the model asked for it
    STARTED = "started"  # its handler may have acted
    FINISHED = "finished"  # its result is stored


class FinishReason(StrEnum):
    """Why an invocation ended, besides its status: the Messages API's stop reasons first, then our own.

    https://docs.claude.com/en/api/handling-stop-reasons
    """

    END_TURN = "end_turn"
    STOP_SEQUENCE = "stop_sequence"
    MAX_TOKENS = "max_tokens"
    TOOL_USE = "tool_use"
    PAUSE_TURN = "pause_turn"
    REFUSAL = "refusal"
    CONTEXT_WINDOW_EXCEEDED = "model_context_window_exceeded"

    MAX_STEPS = "max_steps"
    CANCELLED = "cancelled"
    ERROR = "error"
