"""The harness of tests that are not async: the same runs, waited for."""

from collections.abc import Callable, Coroutine, Iterator, Mapping
from typing import Any, TypeVar, Unpack

from runyard.authoring.functions import Function
from runyard_workers.testing.harness import Controls, Harness
from runyard_workers.testing.results import RunResult, SeenFrame
from runyard_workers.testing.runs import StartedRun
from runyard_workers.testing.runtime import next_of
from runyard_workers.testing.turns import CallOptions, Input, RunOptions

T = TypeVar("T")


class Wait:
    """Runs the event loop until something has ended; between two calls nothing goes on."""

    def __init__(self, until: Callable[[Coroutine[Any, Any, Any]], Any]) -> None:
        self._until = until

    def __call__(self, work: Coroutine[Any, Any, T]) -> T:
        result: T = self._until(work)
        return result


class SyncRun:
    """A run that has begun. It goes on while the test waits for something."""

    def __init__(self, run: StartedRun, wait: Wait) -> None:
        self._run = run
        self._wait = wait
        self.run_id, self.invocation_id, self.stream_id = run.run_id, run.invocation_id, run.stream_id

    def steer(self, said: Input) -> None:
        self._wait(self._run.steer(said))

    def cancel(self) -> None:
        self._wait(self._run.cancel())

    def frames(self) -> Iterator[SeenFrame]:
        frames = self._run.frames()
        while (frame := self._wait(next_of(frames))) is not None:
            yield frame

    def until(self, event: str) -> SeenFrame:
        return self._wait(self._run.until(event))

    def result(self) -> RunResult:
        return self._wait(self._run.result())


class SyncHarness(Controls):
    def __init__(self, harness: Harness, until: Callable[[Coroutine[Any, Any, Any]], Any]) -> None:
        super().__init__(harness.runtime, harness.runs)
        self._harness = harness
        self._wait = Wait(until)

    def run(self, said: Input, **options: Unpack[RunOptions]) -> RunResult:
        return self._wait(self._harness.run(said, **options))

    def start(self, said: Input, **options: Unpack[RunOptions]) -> SyncRun:
        return SyncRun(self._wait(self._harness.start(said, **options)), self._wait)

    def call(
        self, function: str | Function, arguments: Mapping[str, Any] | None = None, **options: Unpack[CallOptions]
    ) -> RunResult:
        return self._wait(self._harness.call(function, arguments, **options))

    def hand_over(self) -> None:
        self._wait(self._harness.hand_over())
