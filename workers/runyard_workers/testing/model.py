"""The model that plays a test's script."""

import itertools
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from typing import Any

from runyard.errors import ProviderError
from runyard.ids import RunId
from runyard_workers.providers.failures import api_failure
from runyard_workers.providers.model import ModelEvent, ModelRequest, Provider, TextDelta
from runyard_workers.testing.errors import ScriptError, WorkerCrashed
from runyard_workers.testing.moments import Moments
from runyard_workers.testing.script import Entry, Failure, Improvised, Script, ScriptedTurn
from runyard_workers.testing.workers import Worker, current_run, current_worker

MODEL = "scripted"
"""The name of the model for agents that name none."""


class ScriptedModel(Script):
    """`h.model`. Each call of a method here begins a turn; what it returns goes on with that turn, then with the next.

    `requests`: every request, in order, including those that were made again because a worker had died.
    """

    def __init__(self) -> None:
        self.requests: list[ModelRequest] = []
        self._played = 0
        super().__init__([])

    def check(self) -> None:
        """Look whether the script was played to its end.

        Raises:
            ScriptError: it was not asked for all of its turns.
        """
        if left := self._entries[self._played :]:
            played = f"{self._played} of {len(self._entries)} turns of the script were asked for"
            raise ScriptError(f"{played}; left: {', then '.join(map(str, left))}")

    def take(self, request: ModelRequest) -> tuple[int, Entry]:
        """The next turn and its number, from 1."""
        self._played += 1
        if self._played > len(self._entries):
            self._played = len(self._entries)
            turns = f"its script has {self._played} turn{'' if self._played == 1 else 's'}"
            raise ScriptError(f"the model is asked once more, and {turns}: {_last(request)}")
        return self._played, self._entries[self._played - 1]


@dataclass(frozen=True, kw_only=True)
class _Asked:
    """A request: the worker that sent it, its messages, and the turn that it was given."""

    worker: Worker
    messages: list[dict[str, Any]]
    number: int
    entry: Entry


class Playback(Provider):
    """Answers each request with the script's next turn, whatever model the agent names.

    A worker that takes over a run repeats the request of the one that died, and gets the same turn. `on_fault` is
    called with the error if the test itself is wrong.
    """

    name = MODEL

    def __init__(self, model: ScriptedModel, moments: Moments, on_fault: Callable[[Exception], None]) -> None:
        self._model = model
        self._moments = moments
        self._on_fault = on_fault
        self._last: dict[RunId, _Asked] = {}
        self._numbers = itertools.count(1)

    def resolve(self, model: str | None) -> tuple[Provider, str]:
        return self, model or MODEL

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        self._model.requests.append(request)
        try:
            asked = self._next(request)
            entry = _improvised(asked.entry, request) if isinstance(asked.entry, Improvised) else asked.entry
        except Exception as error:
            self._on_fault(error)
            raise WorkerCrashed from error
        await self._moments.reached("before", asked.number)
        if isinstance(entry, Failure):
            for piece in entry.pieces:
                yield TextDelta(piece)
            await self._moments.reached("after", asked.number)
            raise _error(entry, request.model)
        for event in entry.deltas():
            yield event
        await self._moments.reached("after", asked.number)
        yield entry.turn(request.model, self._new_call_id)

    def _next(self, request: ModelRequest) -> _Asked:
        run_id, worker = current_run(), current_worker()
        last = self._last.get(run_id)
        if last is not None and last.worker.is_dead and last.messages == request.messages:
            number, entry = last.number, last.entry
        else:
            number, entry = self._model.take(request)
        asked = _Asked(worker=worker, messages=request.messages, number=number, entry=entry)
        self._last[run_id] = asked
        return asked

    def _new_call_id(self) -> str:
        return f"toolu_{next(self._numbers)}"


def _improvised(entry: Improvised, request: ModelRequest) -> ScriptedTurn:
    turn = ScriptedTurn()
    entries: list[Entry] = [turn]
    entry.make(request, Script(entries, turn))
    if len(entries) > 1:
        raise ScriptError(f"{entry} is one turn, and it made {len(entries)}: {', then '.join(map(str, entries))}")
    return turn


def _error(failure: Failure, model: str) -> ProviderError:
    return api_failure(status=failure.status, error_type=failure.kind, said=failure.message or None, model=model)


def _last(request: ModelRequest) -> str:
    message = request.messages[-1]
    return f"the last message is the {message['role']}'s {message['content']!r:.200}"
