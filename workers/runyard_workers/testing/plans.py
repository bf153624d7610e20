"""What happens at a moment that a test names: `h.after(tool="refund").crash()`."""

import asyncio
import inspect
from collections.abc import Callable

from runyard.authoring.tools import Tool
from runyard_workers.testing.errors import WorkerCrashed
from runyard_workers.testing.fleet import Fleet
from runyard_workers.testing.moments import Act, Moment, When
from runyard_workers.testing.runs import Runs
from runyard_workers.testing.turns import Input
from runyard_workers.testing.workers import current_run, is_current


class Plan:
    """A moment, and one of these methods to say what happens then, once. A moment that never comes fails the test."""

    def __init__(self, runs: Runs, moment: Moment) -> None:
        self._runs = runs
        self._moment = moment

    def crash(self) -> None:
        """The worker dies. Another one takes its runs over."""

        async def act() -> None:
            crash_here(self._runs.runtime.fleet)

        self._plan("crash()", act)

    def hand_over(self) -> None:
        """The worker stops as in a deploy: another one goes on from the run's next boundary."""
        self._plan("hand_over()", self._runs.runtime.fleet.hand_over)

    def cancel(self) -> None:
        """A person stops the run."""

        async def act() -> None:
            await self._runs.cancel(current_run())
            await asyncio.sleep(0)  # where a model's call is cancelled that comes here itself

        self._plan("cancel()", act)

    def steer(self, said: Input) -> None:
        """A person says something to the run."""

        async def act() -> None:
            await self._runs.steer(current_run(), said)

        self._plan(f"steer({said!r:.60})", act)

    def does(self, act: Callable[[], object]) -> None:
        """The test's own function runs, sync or async. If it raises, the test fails with that exception."""

        async def guarded() -> None:
            try:
                done = act()
                if inspect.isawaitable(done):
                    await done
            except Exception as error:
                self._runs.runtime.fleet.fail(error)
                raise WorkerCrashed from error

        self._plan(f"does({getattr(act, '__name__', act)!s:.60})", guarded)

    def _plan(self, name: str, act: Act) -> None:
        self._runs.runtime.moments.plan(self._moment, name, act)


def moment_of(when: When, tool: str | Tool | None, step: int | None, nth: int) -> Moment:
    """The moment that `before` and `after` name.

    Raises:
        ValueError: neither a tool nor a step, or both.
    """
    if (tool is None) is (step is None) or nth < 1 or (step is not None and step < 1):
        raise ValueError(f"{when}(...) takes tool=... or step=..., a step from 1 on, and nth from 1 on")
    if step is not None:
        return Moment(when=when, subject=step, nth=nth)
    assert tool is not None
    return Moment(when=when, subject=tool if isinstance(tool, str) else tool.name, nth=nth)


def crash_here(fleet: Fleet) -> None:
    """Kill the worker whose code calls this, or else the newest one.

    Raises:
        WorkerCrashed: a worker's own code called this.
    """

    async def on_loop() -> None:
        fleet.crash()

    if fleet.is_elsewhere():
        asyncio.run_coroutine_threadsafe(on_loop(), fleet.loop).result()
    else:
        fleet.crash()
    if is_current():
        raise WorkerCrashed
