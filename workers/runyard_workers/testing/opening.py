"""`harness(...)`: opens a harness around a block of a test, with `async with` or with `with`."""

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, NoReturn

from runyard.authoring.lifespan import Lifespan
from runyard_workers.testing.harness import Harness
from runyard_workers.testing.report import report
from runyard_workers.testing.runtime import Setup, opened
from runyard_workers.testing.sync import SyncHarness
from runyard_workers.testing.targets import Target, load_target

TIMEOUT_S = 30.0


def harness(
    target: Target,
    *,
    name: str = "agent",
    resources: Mapping[str, Any] | None = None,
    lifespans: Sequence[Lifespan] | None = None,
    timeout_s: float = TIMEOUT_S,
) -> "Opening":
    """Run an agent or a function in this process: no service, no network, no key.

        async with harness(researcher) as h:
            h.model.says("I look.").calls("search_docs", query="swifts").says("In Africa.")
            result = await h.run("Where do swifts winter?")
            assert result.text == "In Africa."

    In a test that is not async: `with harness(researcher) as h`, and `h.run(...)` without `await`.

    `target` is what `agent(...)` or `@function` gave (`name`: what the agent is called), the path of the file that
    holds it, or that of a folder. Given a path, the folder's lifespans are opened; `resources` are there in place of
    them. `lifespans` are those to open, whatever the target is. `timeout_s` is how long a run may take.

    When the block ends without an error, the script of the model and all moments must have been used up.

    Raises:
        StartError: the file or folder does not give what it should, or a lifespan fails.
    """
    setup = Setup(target=load_target(target, name=name), resources=resources, lifespans=lifespans, timeout_s=timeout_s)
    return Opening(setup)


class Opening:
    """A harness that is opened by entering a block, once."""

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._leave = asyncio.Event()
        self._holder: asyncio.Task[None] | None = None
        self._harness: Harness | None = None
        self._runner: asyncio.Runner | None = None

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"{name}: open it first, `with harness(...) as h`, in async code `async with`")

    async def __aenter__(self) -> Harness:
        if self._holder is not None:
            raise RuntimeError("a harness is opened once: call harness(...) again")
        loop = asyncio.get_running_loop()
        ready: asyncio.Future[Harness] = loop.create_future()
        # One task opens and closes all parts, whoever enters and leaves: an author's lifespan may need that.
        self._holder = loop.create_task(self._hold(ready))
        try:
            either: set[asyncio.Future[Any]] = {self._holder, ready}
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        except BaseException:
            self._holder.cancel()
            raise
        if not ready.done():
            await self._holder
        self._harness = ready.result()
        return self._harness

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        assert self._holder is not None
        assert self._harness is not None
        try:
            if error is None:
                self._harness.check()
            elif isinstance(error, Exception):  # not a test that is skipped, or stopped by its person
                error.add_note(await self._report())
        finally:
            self._leave.set()
            await self._holder

    def __enter__(self) -> SyncHarness:
        with contextlib.suppress(RuntimeError):
            asyncio.get_running_loop()
            raise TypeError("an async test opens its harness with `async with harness(...)`")
        self._runner = asyncio.Runner()
        try:
            return SyncHarness(self._runner.run(self.__aenter__()), self._runner.run)
        except BaseException:
            self._runner.close()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        assert self._runner is not None
        try:
            self._runner.run(self.__aexit__(kind, error, traceback))
        finally:
            self._runner.close()

    def report(self) -> str:
        """What happened so far, for the output of a failed test. Only for a harness that was opened by `with`."""
        assert self._runner is not None
        return self._runner.run(self._report())

    async def _report(self) -> str:
        assert self._harness is not None
        try:
            return report(await self._harness.results())
        except Exception as error:  # noqa: BLE001 - it must not hide the test's own failure
            return f"no report of what happened: {error}"

    async def _hold(self, ready: "asyncio.Future[Harness]") -> None:
        async with opened(self._setup) as runtime:
            ready.set_result(Harness(runtime))
            await self._leave.wait()
