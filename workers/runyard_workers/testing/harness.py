"""`h`: the object with which a test drives its agents."""

from collections.abc import Mapping
from typing import Any, Unpack

from runyard.authoring.functions import Function
from runyard.authoring.tools import Tool
from runyard.names import FUNCTION_PREFIX
from runyard_workers.catalog import Loaded
from runyard_workers.testing.model import ScriptedModel
from runyard_workers.testing.plans import Plan, crash_here, moment_of
from runyard_workers.testing.results import RunResult
from runyard_workers.testing.rooms import Broadcast
from runyard_workers.testing.runs import Runs, StartedRun
from runyard_workers.testing.runtime import Runtime
from runyard_workers.testing.tools import ToolExecution
from runyard_workers.testing.turns import CallOptions, Input, RunOptions, agents_turn, functions_turn


class Controls:
    """What the sync and the async harness have in common.

    `model` plays the script. `executions`: each time that a tool or function ran. `broadcasts`: what was sent to rooms.
    `resources`: what tools find as `ctx.resources`.
    """

    def __init__(self, runtime: Runtime, runs: Runs) -> None:
        self._runtime = runtime
        self._runs = runs
        self.model: ScriptedModel = runtime.model
        self.executions: list[ToolExecution] = runtime.watch.executions
        self.broadcasts: list[Broadcast] = runtime.rooms.said
        self.resources: Mapping[str, Any] = runtime.services.resources

    def before(self, *, tool: str | Tool | None = None, step: int | None = None, nth: int = 1) -> Plan:
        """The moment before a tool's function begins, when its call is recorded as started: the n-th time from now on.
        Or the moment when the model is asked for turn `step` of its script, counted from 1.
        """
        return Plan(self._runs, moment_of("before", tool, step, nth))

    def after(self, *, tool: str | Tool | None = None, step: int | None = None, nth: int = 1) -> Plan:
        """The moment when a tool's function has returned and its result is not stored yet. Or when the model has said
        all of turn `step`, which is not stored yet.
        """
        return Plan(self._runs, moment_of("after", tool, step, nth))

    def check(self) -> None:
        """Check that everything the test planned has happened, as the end of the `with` block does.

        Raises:
            ScriptError: something has not.
        """
        self._runtime.check()

    def crash(self) -> None:
        """Kill the worker here and now; another one takes its runs over. When a tool calls it, it does not return.

        Code of tools that waits is cancelled; code in a thread runs to its end, and nobody sees its result.
        """
        crash_here(self._runtime.fleet)


class Harness(Controls):
    def __init__(self, runtime: Runtime) -> None:
        self.runtime, self.runs = runtime, Runs(runtime)
        super().__init__(self.runtime, self.runs)

    async def run(self, said: Input, **options: Unpack[RunOptions]) -> RunResult:
        """Ask an agent and wait for the end."""
        return await (await self.start(said, **options)).result()

    async def start(self, said: Input, **options: Unpack[RunOptions]) -> StartedRun:
        """Ask an agent and go on while it runs."""
        name, loaded = _agent(self._runtime, options.get("agent"))
        turn = agents_turn(name, loaded.manifest["queue"], said, options)
        return StartedRun(self._runs, await self._runs.begin(turn))

    async def call(
        self,
        function: str | Function,
        arguments: Mapping[str, Any] | None = None,
        **options: Unpack[CallOptions],
    ) -> RunResult:
        """Call a function and wait for its end. Arguments that do not fit make the result's error `INVALID_ARGS`."""
        name, loaded = _function(self._runtime, function)
        turn = functions_turn(name, loaded.manifest["queue"], arguments or {}, options)
        return await StartedRun(self._runs, await self._runs.begin(turn)).result()

    async def results(self) -> list[RunResult]:
        """The results, as they are now, of everything that was started."""
        return [await self._runs.look(invocation_id) for invocation_id in self._runs.started]

    async def hand_over(self) -> None:
        """Make the worker leave, as in a deploy: its runs go on elsewhere from their next boundary."""
        await self._runtime.fleet.hand_over()


def _agent(runtime: Runtime, name: str | None) -> tuple[str, Loaded]:
    agents = runtime.services.catalog.agents
    wanted = name or runtime.target.agent
    known = ", ".join(agents) or "none"
    if wanted is None:
        raise LookupError(f"say which agent runs, h.run(..., agent=...): there are {known}")
    if wanted not in agents:
        raise LookupError(f"no agent is named {wanted!r}: there are {known}")
    return wanted, agents[wanted]


def _function(runtime: Runtime, function: str | Function) -> tuple[str, Loaded]:
    functions = runtime.services.catalog.functions
    name = FUNCTION_PREFIX + (function if isinstance(function, str) else function.name)
    if name not in functions:
        known = ", ".join(it.removeprefix(FUNCTION_PREFIX) for it in functions) or "none"
        raise LookupError(f"no function is named {name.removeprefix(FUNCTION_PREFIX)!r}: there are {known}")
    return name, functions[name]
