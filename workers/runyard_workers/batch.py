"""The calls of one turn, through the ledger: planned, started, finished, then all results as one user message."""

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from runyard.authoring.context import RunContext
from runyard.authoring.tools import Tool
from runyard.clock import now_ms
from runyard.db import turns
from runyard.db.engine import Database
from runyard.db.records import Message
from runyard.db.turns import FinishedCall, Held
from runyard.errors import CommitUnknown
from runyard_workers.calls import CallOutcome, ReadyCall, plan_batch, run_group
from runyard_workers.commits import commit, commit_repeatable
from runyard_workers.contexts import Contexts
from runyard_workers.liveness import Liveness
from runyard_workers.output import Output
from runyard_workers.results import ToolResult
from runyard_workers.threads import ToolThreads
from runyard_workers.transcript import Block, tool_result, tool_uses


@dataclass(frozen=True, kw_only=True)
class Batches:
    """Runs the calls of one turn after another, for one execution."""

    database: Database
    held: Held
    tools: Mapping[str, Tool]
    threads: ToolThreads
    liveness: Liveness
    output: Output
    contexts: Contexts

    async def run(self, turn: Message) -> list[Block]:
        """Answer every call of an assistant row; returns the content of the user row, which is committed.

        Each result is stored as it comes, the last one together with the row.

        Raises:
            GenerationLost: the run belongs to another worker; tools that run are dropped.
            CommitUnknown: the row may be there; the ledger has every result.
        """
        blocks = tool_uses(turn.content)
        ledger = await self.database.read(turns.load_calls, self.held.run_id, turn.seq)
        batch = plan_batch(blocks, ledger, self.tools)
        results = batch.finished | batch.refused
        unstored = [_finished(index, result) for index, result in batch.refused.items()]
        told = [CallOutcome(index=index, result=result, duration_ms=0) for index, result in batch.refused.items()]
        for group in batch.groups:
            await self._start(turn, group, blocks, unstored)
            self._tell(told, blocks)
            unstored, told = [], []
            async with contextlib.aclosing(run_group(group, self.threads, self._context_of(turn))) as outcomes:
                async for outcome in outcomes:
                    results[outcome.index] = outcome.result
                    unstored, told = [_finished(outcome.index, outcome.result)], [outcome]
                    if len(results) < len(blocks):
                        await self._finish(turn, unstored[0])
                        self._tell(told, blocks)
                        unstored, told = [], []
        content = [
            tool_result(block["id"], results[index].content, is_error=results[index].is_error)
            for index, block in enumerate(blocks)
        ]
        try:
            await commit(
                self.database,
                turns.append_results,
                self.held,
                turn.seq,
                finished=unstored,
                content=content,
                at=now_ms(),
            )
        except CommitUnknown:
            # The run is loaded anew: what only memory holds must be in the ledger by then.
            for call in unstored:
                await self._finish(turn, call)
            self._tell(told, blocks)
            raise
        self._tell(told, blocks)
        return content

    async def _start(
        self, turn: Message, group: Sequence[ReadyCall], blocks: Sequence[Block], refused: Sequence[FinishedCall]
    ) -> None:
        await self.liveness.wait()
        await commit_repeatable(
            self.database,
            turns.start_calls,
            self.held,
            turn.seq,
            starting=[call.index for call in group],
            finished=refused,
            at=now_ms(),
        )
        for call in group:
            self.output.tool_start(blocks[call.index])

    async def _finish(self, turn: Message, call: FinishedCall) -> None:
        await commit_repeatable(self.database, turns.finish_call, self.held, turn.seq, call, at=now_ms())

    def _tell(self, outcomes: Sequence[CallOutcome], blocks: Sequence[Block]) -> None:
        for outcome in outcomes:
            self.output.tool(blocks[outcome.index], is_error=outcome.result.is_error, duration_ms=outcome.duration_ms)

    def _context_of(self, turn: Message) -> Callable[[ReadyCall], RunContext]:
        def context_of(call: ReadyCall) -> RunContext:
            return self.contexts.of_call(call.call_id, assistant_seq=turn.seq, index=call.index)

        return context_of


def _finished(index: int, result: ToolResult) -> FinishedCall:
    return FinishedCall(index=index, content=result.content, is_error=result.is_error)
