"""The calls of one turn, through the ledger: planned, started, finished, then all results as one user message."""

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from runyard.authoring.context import RunContext
from runyard.authoring.tools import Tool
from runyard.blocks import Block, tool_result, tool_uses
from runyard.clock import now_ms
from runyard.db import boundaries, quiet, turns
from runyard.db.boundaries import Boundary
from runyard.db.engine import Database
from runyard.db.records import Message
from runyard.db.turns import FinishedCall, Held
from runyard.errors import CommitUnknown, HandOver
from runyard.metrics import TOOL_ERRORS, TOOL_SECONDS
from runyard_workers.calls import CallOutcome, ReadyCall, plan_batch, run_group
from runyard_workers.commits import commit, commit_at_once, commit_repeatable
from runyard_workers.contexts import Contexts
from runyard_workers.liveness import Liveness
from runyard_workers.output import Output
from runyard_workers.results import ToolResult
from runyard_workers.threads import ToolThreads


@dataclass(frozen=True, kw_only=True)
class Batches:
    """Runs the calls of one turn after another, for one execution.

    `running`: calls whose results are not in the ledger yet. `deaths`: the invocation's.
    """

    database: Database
    held: Held
    agent: str
    tools: Mapping[str, Tool]
    threads: ToolThreads
    liveness: Liveness
    output: Output
    contexts: Contexts
    cancelled: asyncio.Event
    leaving: asyncio.Event
    deaths: list[list[str]]
    running: list[ReadyCall] = field(default_factory=list)

    async def run(self, turn: Message) -> Boundary:
        """Answer every call of an assistant row; returns the tool boundary that was committed.

        Each result is stored as it comes, the last one together with the user row. Once the run is cancelled, no
        further call starts.

        Raises:
            GenerationLost: the run belongs to another worker; running tools are dropped.
            HandOver: the worker is leaving; another one runs the calls that have not started.
            CommitUnknown: the user row may be stored; the ledger has every result.
        """
        try:
            return await self._run(turn)
        finally:
            self.running.clear()

    def may_be_dropped(self) -> bool:
        """Whether everything that runs now may be run again elsewhere."""
        return all(call.tool.idempotent for call in self.running)

    async def _run(self, turn: Message) -> Boundary:
        blocks = tool_uses(turn.content)
        ledger = await self.database.read(turns.load_calls, self.held.run_id, turn.seq)
        batch = plan_batch(blocks, ledger, self.tools)
        results = batch.finished | batch.refused
        unstored = [_outcome(index, result) for index, result in batch.refused.items()]
        for group in batch.groups:
            if self.cancelled.is_set():
                skipped = [_outcome(call.index, call.result_unless_it_runs) for call in group]
                results |= {outcome.index: outcome.result for outcome in skipped}
                unstored += skipped
                continue
            if self.leaving.is_set():
                raise HandOver(self.held.run_id)
            await self._start(turn, group, blocks, unstored)
            unstored = []
            outcomes = run_group(group, self.threads, self._context_of(turn), self.cancelled)
            async with contextlib.aclosing(outcomes):
                async for outcome in outcomes:
                    TOOL_SECONDS.labels(self.agent).observe(outcome.duration_ms / 1000)
                    TOOL_ERRORS.labels(self.agent).inc(outcome.result.is_error)
                    await self._acquit(blocks[outcome.index]["name"])
                    results[outcome.index] = outcome.result
                    unstored = [outcome]
                    if len(results) < len(blocks):
                        await self._finish(turn, outcome)
                        self.running[:] = [call for call in self.running if call.index != outcome.index]
                        self._tell(unstored, blocks)
                        unstored = []
        return await self._append(turn, blocks, results, unstored)

    async def _append(
        self, turn: Message, blocks: Sequence[Block], results: Mapping[int, ToolResult], unstored: list[CallOutcome]
    ) -> Boundary:
        content = [
            tool_result(block["id"], results[index].content, is_error=results[index].is_error)
            for index, block in enumerate(blocks)
        ]
        try:
            finished = [_finished(outcome) for outcome in unstored]
            answer: dict[str, Any] = {"finished": finished, "results": content, "at": now_ms()}
            boundary = await commit_at_once(self.database, quiet.append_results, self.held, turn.seq, **answer)
            if boundary is None:
                boundary = await commit(self.database, boundaries.append_results, self.held, turn.seq, **answer)
        except CommitUnknown:
            # The run is loaded anew: what only memory holds must be in the ledger by then.
            for outcome in unstored:
                await self._finish(turn, outcome)
            self._tell(unstored, blocks)
            raise
        self._tell(unstored, blocks)
        return boundary

    async def _start(
        self, turn: Message, group: Sequence[ReadyCall], blocks: Sequence[Block], refused: Sequence[CallOutcome]
    ) -> None:
        await self.liveness.wait()
        self.running[:] = group
        await commit_repeatable(
            self.database,
            turns.start_calls,
            self.held,
            turn.seq,
            starting=[call.index for call in group],
            finished=[_finished(outcome) for outcome in refused],
            at=now_ms(),
        )
        self._tell(refused, blocks)
        for call in group:
            self.output.tool_start(blocks[call.index])

    async def _acquit(self, tool: str) -> None:
        """Clear the deaths that count against a tool: since it has returned, it did not kill those workers."""
        if any(tool in started for started in self.deaths):
            self.deaths[:] = [[name for name in started if name != tool] for started in self.deaths]
            await commit_repeatable(self.database, turns.set_deaths, self.held, self.deaths)

    async def _finish(self, turn: Message, outcome: CallOutcome) -> None:
        call = _finished(outcome)
        await commit_repeatable(self.database, turns.finish_call, self.held, turn.seq, call, at=now_ms())

    def _tell(self, outcomes: Sequence[CallOutcome], blocks: Sequence[Block]) -> None:
        for outcome in outcomes:
            self.output.tool(blocks[outcome.index], is_error=outcome.result.is_error, duration_ms=outcome.duration_ms)

    def _context_of(self, turn: Message) -> Callable[[ReadyCall], RunContext]:
        def context_of(call: ReadyCall) -> RunContext:
            return self.contexts.of_call(call.call_id, assistant_seq=turn.seq, index=call.index)

        return context_of


def _outcome(index: int, result: ToolResult) -> CallOutcome:
    """The outcome of a call that will not run."""
    return CallOutcome(index=index, result=result, duration_ms=0)


def _finished(outcome: CallOutcome) -> FinishedCall:
    result = outcome.result
    return FinishedCall(index=outcome.index, content=result.content, is_error=result.is_error)
