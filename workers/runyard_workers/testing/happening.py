"""What happens at a moment that a test names: `h.after(tool="refund").crash()`."""

import asyncio
import inspect
from collections.abc import Callable

from runyard.authoring.tools import Tool
from runyard_workers.testing.crew import Crew
from runyard_workers.testing.errors import WorkerCrashed
from runyard_workers.testing.moments import Act, Moment, When
from runyard_workers.testing.runs import Runs
from runyard_workers.testing.turns import Input
from runyard_workers.testing.workers import current_run, is_current


class Happening:
    """Each happens once. A moment that never comes fails the test, when its harness is left."""

    def __init__(self, runs: Runs, moment: Moment) -> None:
        self._runs = runs
        self._moment = moment

    def crash(self) -> None:
        """The worker dies, and another one takes its runs over."""

        async def act() -> None:
            crash_here(self._runs.stage.crew)

        self._plan("crash()", act)

    def hand_over(self) -> None:
        """The worker is told to leave, as in a deploy: another one goes on from the next boundary."""
        self._plan("hand_over()", self._runs.stage.crew.hand_over)

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
        """The test's own function runs, sync or async. What it raises is what the test fails with."""

        async def guarded() -> None:
            try:
                done = act()
                if inspect.isawaitable(done):
                    await done
            except Exception as error:
                self._runs.stage.crew.fail(error)
                raise WorkerCrashed from error

        self._plan(f"does({getattr(act, '__name__', act)!s:.60})", guarded)

    def _plan(self, name: str, act: Act) -> None:
        self._runs.stage.moments.plan(self._moment, name, act)


def moment_of(when: When, tool: str | Tool | None, step: int | None, nth: int) -> Moment:
    """Raises:
    ValueError: neither a tool nor a step, or both.
    """
    if (tool is None) is (step is None) or nth < 1 or (step is not None and step < 1):
        raise ValueError(f"{when}(...) takes tool=... or step=..., a step from 1 on, and nth from 1 on")
    if step is not None:
        return Moment(when=when, subject=step, nth=nth)
    assert tool is not None
    return Moment(when=when, subject=tool if isinstance(tool, str) else tool.name, nth=nth)


def crash_here(crew: Crew) -> None:
    """Let a worker die: that of the code that asks for it, else the newest.

    Raises:
        WorkerCrashed: a worker's own code asked for it.
    """

    async def on_loop() -> None:
        crew.crash()

    if crew.is_elsewhere():
        asyncio.run_coroutine_threadsafe(on_loop(), crew.loop).result()
    else:
        crew.crash()
    if is_current():
        raise WorkerCrashed
