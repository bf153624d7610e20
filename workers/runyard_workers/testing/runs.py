"""Runs of one harness: begun as a gateway begins them, steered, cancelled, looked at."""

from collections.abc import AsyncIterator

from runyard.clock import now_ms
from runyard.db import reads, turns
from runyard.ids import InvocationId, RunId, StreamId
from runyard.lifecycle.accept import accept_turn
from runyard.lifecycle.cancelling import cancel_run
from runyard.lifecycle.new_turn import Accepted, NewTurn
from runyard.runs import BUSY
from runyard_workers.testing.errors import ScriptError
from runyard_workers.testing.results import RunResult, SeenFrame, seen
from runyard_workers.testing.runtime import Runtime
from runyard_workers.testing.turns import Input, RunOptions, agents_turn

FRAMES_MAX = 1_000_000


class Runs:
    """The runs of one harness. `started`: the accepted turns, by invocation."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime
        self.started: dict[InvocationId, NewTurn] = {}
        self._owners: dict[RunId, NewTurn] = {}

    async def begin(self, turn: NewTurn) -> Accepted:
        """Accept a turn, as a gateway does, and have it run.

        Raises:
            RunNotFound, RunBusy, AgentMismatch, ...: see `accept_turn`.
        """
        runtime = self.runtime
        accepted: Accepted = await runtime.services.database.write(accept_turn, turn)
        self.started.setdefault(accepted.invocation_id, turn)
        self._owners[accepted.run_id] = turn
        if accepted.ending is not None:
            runtime.services.closer.close(accepted.ending)
        if accepted.waits_for_end:
            await runtime.fleet.tell_cancel(accepted.run_id)
        runtime.fleet.wake()
        return accepted

    async def steer(self, run_id: RunId, said: Input) -> None:
        """Send input to a turn that is under way.

        Raises:
            ScriptError: none is. The input would begin one, so it is not sent.
        """
        owner = self._owners[run_id]
        has_ended = ScriptError(f"the run had ended before it was steered by {said!r:.80}")
        found = await self.runtime.services.database.read(reads.run_of, run_id, owner.scope)
        if found is None or found[0].status not in BUSY:
            raise has_ended
        turn = agents_turn(
            owner.agent,
            owner.queue,
            said,
            RunOptions(continues=run_id, tenant_id=owner.tenant_id, user_id=owner.user_id, roles=owner.roles),
        )
        if not (await self.begin(turn)).is_steering:
            raise has_ended

    async def cancel(self, run_id: RunId) -> None:
        runtime = self.runtime
        cancelled = await runtime.services.database.write(cancel_run, run_id, self._owners[run_id].scope, at=now_ms())
        if cancelled.ending is not None:
            runtime.services.closer.close(cancelled.ending)
        await runtime.fleet.tell_cancel(run_id)

    async def look(self, invocation_id: InvocationId) -> RunResult:
        """An invocation as it is now."""
        database, scope = self.runtime.services.database, self.started[invocation_id].scope
        found = await database.read(reads.invocation_of, invocation_id, scope)
        assert found is not None, "it was accepted"
        invocation, run = found
        return RunResult(
            run=run,
            invocation=invocation,
            rows=await database.read(turns.load_messages, run.id),
            stored_frames=await self.runtime.frames.read(invocation.stream_id, 0, FRAMES_MAX),
        )


class StartedRun:
    """A run that goes on beside the test."""

    def __init__(self, runs: Runs, accepted: Accepted) -> None:
        self._runs = runs
        self.run_id: RunId = accepted.run_id
        self.invocation_id: InvocationId = accepted.invocation_id
        self.stream_id: StreamId = accepted.stream_id

    async def steer(self, said: Input) -> None:
        """Say something while it runs.

        Raises:
            ScriptError: it had ended before.
        """
        await self._runs.steer(self.run_id, said)

    async def cancel(self) -> None:
        """Cancel it as a person would. Returns at once; `result()` waits for the end."""
        await self._runs.cancel(self.run_id)

    async def frames(self) -> AsyncIterator[SeenFrame]:
        """What a reader of it gets, as it comes, up to the terminal frame."""
        async for frame in self._runs.runtime.follow(self.stream_id):
            yield seen(frame)

    async def until(self, event: str) -> SeenFrame:
        """Wait for the first frame with this event: `tool_start`, for example, or an event of the agent's own.

        Raises:
            ScriptError: the run ended without one.
        """
        async for frame in self.frames():
            if frame.event == event:
                return frame
        raise ScriptError(f"the run has ended without a frame {event!r}")

    async def result(self) -> RunResult:
        """Wait for its end.

        Raises:
            TimeoutError: it has not ended in time.
            ScriptError: the model's script ended first.
        """
        async for _ in self._runs.runtime.follow(self.stream_id):
            pass
        return await self._runs.look(self.invocation_id)
