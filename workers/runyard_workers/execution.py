"""One claimed run, from its claim to its settlement: it is loaded, then goes step after step until a boundary ends it.

Memory is only a copy of the rows. After a commit of unknown outcome it is thrown away, and the run is loaded again
under the same generation. Frames of work that was not committed are withdrawn.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import structlog

from runyard.authoring.tools import Tool
from runyard.blocks import Block, text_of, tool_uses
from runyard.clock import now_ms
from runyard.db import boundaries, quiet, turns
from runyard.db.boundaries import Boundary, Settlement
from runyard.db.claims import Claim, GivenBack
from runyard.db.deaths import crash_reason
from runyard.db.records import Call, Input, Message
from runyard.db.transcripts import AssistantTurn
from runyard.db.turns import Held, PlannedCall, Totals
from runyard.errors import GenerationLost, HandOver, InternalError, RunCrashed, RunyardError, Signal, StoreUnavailable
from runyard.lifecycle import settling
from runyard.lifecycle.endings import Ending, ending, stored_ending
from runyard.metrics import CANCEL_SECONDS, SETTLED
from runyard.runs import RunStatus
from runyard_workers import spans
from runyard_workers.batch import Batches
from runyard_workers.catalog import Loaded, LoadedAgent, LoadedFunction
from runyard_workers.commits import commit, commit_at_once, database_backoff
from runyard_workers.contexts import Contexts
from runyard_workers.continuations import asks_for_tools, check_pauses, is_paused, paused_parts
from runyard_workers.functions.output import FunctionOutput
from runyard_workers.functions.steps import FunctionSteps
from runyard_workers.output import Output
from runyard_workers.services import Services
from runyard_workers.steps import ModelSteps, Steps, StoppedError

log = structlog.get_logger()


async def _never() -> bool:
    return False


class Execution:
    """The execution of one run. The runner owns it, and cancels its task to drop the run.

    When `run` has ended, `replacement` is the call that is next on this run. After a hand-over, `sent` is the number of
    its last frame; None: Redis does not have all of them.
    """

    def __init__(
        self, services: Services, claim: Claim, loaded: Loaded, *, must_yield: Callable[[], Awaitable[bool]] = _never
    ) -> None:
        self.held = Held(run_id=claim.run.id, invocation_id=claim.invocation.id, generation=claim.run.generation)
        self.replacement: GivenBack | None = None
        self.sent: int | None = None
        self.has_yielded = False
        """It was handed over for another tenant's run, and not because the worker leaves."""
        self._is_handed_over = False
        self._has_worked = False
        self._must_yield = must_yield
        self._services = services
        self._claim = claim
        self._cancelled = asyncio.Event()
        self._cancelled_at: float | None = None
        self._leaving = asyncio.Event()
        if claim.run.cancel_requested:
            self._cancelled.set()
        self._output: Output
        self._steps: Steps
        match loaded:
            case LoadedAgent(agent=agent):
                self._output = Output(services, claim, self.held)
                contexts = self._contexts(self._output)
                self._steps = ModelSteps(services, claim, agent, self._output, contexts)
                self._tools: dict[str, Tool] = {tool.name: tool for tool in agent.tools}
            case LoadedFunction(function=function):
                self._output = output = FunctionOutput(services, claim, self.held)
                contexts = self._contexts(output)
                self._steps = steps = FunctionSteps(services, claim, function, output)
                self._tools = {steps.tool.name: steps.tool}
        self._batches = Batches(
            database=services.database,
            held=self.held,
            agent=claim.run.agent,
            tools=self._tools,
            threads=services.threads,
            liveness=services.liveness,
            output=self._output,
            contexts=contexts,
            cancelled=self._cancelled,
            leaving=self._leaving,
            deaths=claim.invocation.deaths,
        )
        self._rows: list[Message] = []
        self._is_claimed_copy = True
        self._log = log.bind(run_id=claim.run.id, invocation_id=claim.invocation.id, generation=claim.run.generation)

    def _contexts(self, output: Output) -> Contexts:
        services = self._services
        return Contexts(claim=self._claim, output=output, broadcasts=services.broadcasts, resources=services.resources)

    def cancel(self) -> None:
        """A person stops the run, as its row says: abort the model's call and tell the tools."""
        if not self._cancelled.is_set():
            self._log.info("run is being cancelled")
            self._cancelled_at = time.monotonic()
            self._cancelled.set()
            self._steps.stop()

    def leave(self) -> None:
        """The worker is leaving: hand the run over as soon as nothing is under way (`HandOver`)."""
        self._leaving.set()

    def spent(self) -> Totals:
        """What it has cost so far, including a model's call that was broken off."""
        return self._steps.progress.totals()

    def may_be_dropped(self) -> bool:
        """Whether another worker could begin again what is under way: a model's call, or idempotent tools."""
        return not self._is_handed_over and self._batches.may_be_dropped()

    async def run(self) -> None:
        """Drive the run until it is settled.

        Raises:
            GenerationLost: the run belongs to another worker now; nothing was written since then.
            HandOver: the run stands at a boundary with its frames sent, and another worker is to go on.
        """
        try:
            end = await self._until_settled()
        except HandOver:
            self._is_handed_over = True
            if await self._output.flush():
                self.sent = self._output.writer.last
            self._output.leave().release()
            raise
        except BaseException:
            self._output.leave().release()
            raise
        self._services.closer.close(end, self._output.leave())
        self._tell(end)

    def _tell(self, end: Ending) -> None:
        """Report the end in metrics, traces and the log."""
        status, code = end.result["status"], None if end.error is None else end.error["code"]
        SETTLED.labels(self._claim.run.agent, status, code or "").inc()
        if self._cancelled_at is not None:
            CANCEL_SECONDS.observe(time.monotonic() - self._cancelled_at)
        spans.left(status, error_type=code)
        reason = {} if code is None else {"code": code}
        self._log.info("run settled", status=status, steps=end.result["steps"], **reason)

    async def _until_settled(self) -> Ending:
        backoff = database_backoff()
        while True:
            try:
                return await self._attempt()
            except StoreUnavailable as error:
                self._log.warning("run is loaded again", error=str(error))
            await asyncio.sleep(backoff.next_s())

    async def _attempt(self) -> Ending:
        try:
            settled = await self._load()
            if settled is not None:
                return settled
            await self._output.align(self._rows)
            if reason := crash_reason(self._claim.invocation.deaths):
                raise RunCrashed(reason)
            return await self._loop()
        except (Signal, StoreUnavailable):
            raise
        except RunyardError as error:
            return await self._fail(error)
        except Exception as error:  # noqa: BLE001 - whatever it is, the run must end and say so
            self._log.exception("run failed unexpectedly")
            return await self._fail(InternalError(f"Internal error ({type(error).__name__})"))

    async def _load(self) -> Ending | None:
        """Take the rows as the claim left them, or read them again after a failure.

        Returns the ending if a settlement of unknown outcome did happen.
        """
        database = self._services.database
        if self._is_claimed_copy:
            self._is_claimed_copy = False
            transcript = self._claim.transcript
            if transcript is None:
                transcript = await database.read(turns.load_messages, self.held.run_id)
            self._rows = transcript
            return None
        run, invocation = await database.read(turns.load_held, self.held)
        self._rows = await database.read(turns.load_messages, self.held.run_id)
        if invocation.settled_at is not None:
            if run.status is RunStatus.QUEUED:
                self.replacement = GivenBack(run_id=run.id, invocation_id=run.newest_invocation, queue=run.queue)
            return stored_ending(invocation, self._rows)
        if run.generation != self.held.generation or run.status is not RunStatus.RUNNING:
            raise GenerationLost(self.held.run_id)
        self._steps.progress = self._steps.progress.loaded(run, invocation)
        if run.cancel_requested:
            self.cancel()
        return None

    async def _loop(self) -> Ending:
        while True:
            last = self._rows[-1]
            if last.role == "assistant" and not is_paused(last):
                boundary = await self._batches.run(last)
                self._rows += boundary.appended
                self._output.appended(boundary)
                if boundary.cancel_requested:
                    self._cancelled.set()
            elif not self._steps.is_ending(self._rows) and await self._gives_up():
                raise HandOver(self.held.run_id)
            elif self._cancelled.is_set():
                if (settled := await self._end_turn(self._steps.unsaid(self._rows), [])) is not None:
                    return settled
            elif (settled := await self._step()) is not None:
                return settled
            self._has_worked = True

    async def _gives_up(self) -> bool:
        """Whether another worker is to go on from here. A run that was just claimed makes a step first, or it would be
        passed round for ever. A run that a person stops ends here, since elsewhere it would wait for its turn to be
        stopped.
        """
        is_asked = self._has_worked and not (self._leaving.is_set() or self._cancelled.is_set())
        self.has_yielded = is_asked and await self._must_yield()
        return (self._leaving.is_set() or self.has_yielded) and not self._cancelled.is_set()

    async def _step(self) -> Ending | None:
        """One turn and the boundary after it. Returns the ending if the invocation ended there."""
        check_pauses(self._rows)
        try:
            step = await self._steps.call(self._rows)
        except StoppedError as stopped:
            return await self._end_turn(stopped.turn, [])
        blocks = tool_uses(step.turn.content)
        if is_paused(step.turn) or asks_for_tools(step.turn, self._rows, self.held.invocation_id):
            await self._append_turn(step.turn, blocks, step.broken_inputs)
            return None
        return await self._end_turn(step.turn, settling.cut_calls(blocks, step.turn.stop_reason), step.result_fields)

    async def _append_turn(
        self, turn: AssistantTurn, blocks: Sequence[Block], broken_inputs: Mapping[str, str]
    ) -> None:
        calls = [self._plan(block, broken_inputs) for block in blocks]
        row = await commit_at_once(
            self._services.database,
            turns.append_turn,
            self.held,
            turn,
            calls,
            self._steps.progress.totals(),
            at=now_ms(),
        )
        self._rows.append(row)
        self._output.message(row.seq, row.role)
        for block in blocks:
            if block["id"] in broken_inputs:
                self._output.tool(block, is_error=True, duration_ms=0)

    def _plan(self, block: Block, broken_inputs: Mapping[str, str]) -> PlannedCall:
        tool = self._tools.get(block["name"])
        return PlannedCall(
            call_id=block["id"],
            name=block["name"],
            idempotent=tool is not None and tool.idempotent,
            refusal=broken_inputs.get(block["id"]),
        )

    async def _end_turn(
        self, turn: AssistantTurn | None, results: list[Block], result_fields: Mapping[str, Any] = MappingProxyType({})
    ) -> Ending | None:
        """The terminal boundary. None: what steers the run became its next turn. `result_fields`: see `Step`.

        A turn without content is not stored.
        """
        run, invocation, totals = self._claim.run, self._claim.invocation, self._steps.progress.totals()
        stored = turn if turn is not None and turn.content else None
        last_frame = self._output.writer.last if turn is None else turn.last_frame

        def conclude(appended: Sequence[Message], cancelled: bool, _unanswered: Sequence[Input]) -> Settlement:
            if cancelled or turn is None:
                rows = [*self._rows, *appended]
                return settling.cancelled(run, invocation, totals, rows, last_frame=last_frame)
            return settling.completed(
                run,
                invocation,
                totals,
                text="".join(text_of(part.content) for part in paused_parts(self._rows)) + text_of(turn.content),
                model=turn.model,
                finish_reason=turn.stop_reason,
                result_fields=result_fields,
                last_frame=last_frame,
            )

        await self._output.flush()
        database, boundary = self._services.database, None
        end: dict[str, Any] = {"results": results, "conclude": conclude, "totals": totals, "at": now_ms()}
        if stored is not None:
            boundary = await commit_at_once(database, quiet.end_turn, self.held, turn=stored, **end)
        if boundary is None:
            boundary = await commit(database, boundaries.end_turn, self.held, turn=stored, **end)
        return self._passed(boundary)

    async def _fail(self, error: RunyardError) -> Ending:
        last_frame = self._output.withdraw(self._rows)
        try:
            ledger = await self._services.database.read(turns.load_calls, self.held.run_id, self._rows[-1].seq)
            return await self._settle_failed(error, ledger, last_frame)
        except (Signal, StoreUnavailable):
            raise
        except Exception:  # noqa: BLE001 - see below
            # Nothing can be made of its rows. It ends all the same: given back, it would fail on every worker in turn.
            self._log.exception("run ends with its calls open")
            return await self._settle_failed(error, None, last_frame)

    async def _settle_failed(self, error: RunyardError, ledger: Sequence[Call] | None, last_frame: int) -> Ending:
        run, invocation, totals = self._claim.run, self._claim.invocation, self._steps.progress.totals()

        def conclude(appended: Sequence[Message], cancelled: bool, unanswered: Sequence[Input]) -> Settlement:
            rows = [*self._rows, *appended]
            if cancelled:
                return settling.cancelled(run, invocation, totals, rows, last_frame=last_frame)
            return settling.failed(run, invocation, totals, rows, error, unanswered=unanswered, last_frame=last_frame)

        await self._output.flush()
        boundary = await commit(
            self._services.database,
            boundaries.fail_turn,
            self.held,
            results=settling.open_calls(self._rows, ledger, not_started=settling.NOT_STARTED),
            conclude=conclude,
            totals=totals,
            at=now_ms(),
        )
        settled = self._passed(boundary)
        assert settled is not None, "a failure ends the invocation"
        return settled

    def _passed(self, boundary: Boundary) -> Ending | None:
        self._rows += boundary.appended
        if boundary.settlement is None:
            self._output.appended(boundary)
            return None
        self.replacement = boundary.replacement
        return ending(self._claim.invocation, boundary.settlement, self._rows, appended=boundary.appended)
