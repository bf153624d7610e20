"""One claimed run, from its claim to its settlement: load, then step after step until a boundary ends it.

Memory is only a copy of the rows: after a commit of unknown outcome it is thrown away and the run is loaded anew under
the same generation. Frames of work that was not committed are withdrawn.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import structlog

from runyard.clock import now_ms
from runyard.db import turns
from runyard.db.claims import Claim
from runyard.db.deaths import crash_reason
from runyard.db.records import Call, Message
from runyard.db.turns import AssistantTurn, Held, PlannedCall
from runyard.errors import GenerationLost, InternalError, MaxSteps, RunCrashed, RunyardError, Signal, StoreUnavailable
from runyard.runs import FinishReason, RunStatus
from runyard_workers import settlement
from runyard_workers.batch import Batches
from runyard_workers.catalog import LoadedAgent
from runyard_workers.closer import Ending
from runyard_workers.commits import backoff, commit
from runyard_workers.contexts import Contexts
from runyard_workers.output import Output
from runyard_workers.prices import Cost, cost
from runyard_workers.progress import Progress
from runyard_workers.prompts import system_prompt
from runyard_workers.providers.model import ModelRequest
from runyard_workers.services import Services
from runyard_workers.settlement import End
from runyard_workers.transcript import Block, request_messages, tool_uses
from runyard_workers.turn import ModelCall, StreamedTurn

log = structlog.get_logger()


class Execution:
    """Owned by the runner, which cancels its task to drop the run."""

    def __init__(self, services: Services, claim: Claim, loaded: LoadedAgent) -> None:
        self._services = services
        self._claim = claim
        self._agent = loaded.agent
        self._tools = {tool.name: tool for tool in self._agent.tools}
        self._options: dict[str, Any] = claim.invocation.options
        self.held = Held(run_id=claim.run.id, invocation_id=claim.invocation.id, generation=claim.run.generation)
        self._output = Output(services, claim, self.held)
        self._contexts = Contexts(claim=claim, output=self._output, resources=services.resources)
        self._batches = Batches(
            database=services.database,
            held=self.held,
            tools=self._tools,
            threads=services.threads,
            liveness=services.liveness,
            output=self._output,
            contexts=self._contexts,
        )
        self._rows: list[Message] = []
        self._is_claimed_copy = True
        self._progress = Progress.stored(claim.run, claim.invocation)
        self._log = log.bind(run_id=claim.run.id, invocation_id=claim.invocation.id, generation=claim.run.generation)

    async def run(self) -> None:
        """Drive the run until it is settled, however often the database goes away.

        Raises:
            GenerationLost: the run belongs to another worker; nothing was written since.
        """
        try:
            ending = await self._until_settled()
        except BaseException:
            self._output.leave().release()
            raise
        self._services.closer.close(ending, self._output.leave())
        self._log.info("run settled", status=ending.result["status"], steps=ending.result["steps"])

    async def _until_settled(self) -> Ending:
        delays = backoff()
        while True:
            try:
                return await self._attempt()
            except StoreUnavailable as error:
                self._log.warning("run loads anew", error=str(error))
            await asyncio.sleep(next(delays))

    async def _attempt(self) -> Ending:
        try:
            ending = await self._load()
            if ending is not None:
                return ending
            await self._output.align(self._rows)
            if reason := crash_reason(self._claim.invocation.deaths):
                raise RunCrashed(reason)
            return await self._steps()
        except (Signal, StoreUnavailable):
            raise
        except RunyardError as error:
            return await self._fail(error)
        except Exception as error:  # noqa: BLE001 - whatever it is, the run must end and say so
            self._log.exception("run failed unexpectedly")
            return await self._fail(InternalError(f"Internal error ({type(error).__name__})"))

    async def _load(self) -> Ending | None:
        """Take the rows as the claim left them, or after a failure read them anew.

        Returns the ending, if a settlement of unknown outcome did happen.
        """
        database = self._services.database
        if self._is_claimed_copy:
            self._is_claimed_copy = False
            transcript = self._claim.transcript
            if transcript is None:
                transcript = await database.read(turns.load_messages, self.held.run_id)
            self._rows = transcript
            return None
        run, invocation = await database.read(turns.load_run, self.held.run_id)
        if run.generation != self.held.generation or invocation.id != self.held.invocation_id:
            raise GenerationLost(self.held.run_id)
        self._rows = await database.read(turns.load_messages, self.held.run_id)
        self._progress = Progress.stored(run, invocation)
        if run.status is not RunStatus.RUNNING:
            return settlement.stored_ending(invocation, self._rows)
        return None

    async def _steps(self) -> Ending:
        while True:
            last = self._rows[-1]
            if last.role == "assistant":
                results = await self._batches.run(last)
                self._append(settlement.results_row(self.held, last.seq + 1, results, at=now_ms()))
                continue
            streamed, price = await self._call_model()
            row = self._assistant_turn(streamed, price)
            if row.stop_reason != FinishReason.TOOL_USE or not tool_uses(row.content):
                return await self._settle(settlement.completed(self._claim, self._progress, self._rows, row))
            await self._append_turn(row, streamed.turn.broken_inputs)

    async def _append_turn(self, turn: AssistantTurn, broken_inputs: Mapping[str, str]) -> None:
        blocks, at = tool_uses(turn.content), now_ms()
        calls = [self._plan(block, broken_inputs) for block in blocks]
        await commit(self._services.database, turns.append_turn, self.held, turn, calls, self._progress.totals(), at=at)
        self._append(settlement.turn_row(self.held, turn, at=at))
        for block in blocks:
            if block["id"] in broken_inputs:
                self._output.tool(block, is_error=True, duration_ms=0)

    def _append(self, row: Message) -> None:
        self._rows.append(row)
        self._output.message(row.seq, row.role)

    async def _call_model(self) -> tuple[StreamedTurn, Cost]:
        agent, options = self._agent, self._options
        max_steps = min(options.get("maxSteps", agent.max_steps), agent.max_steps)
        if self._progress.steps >= max_steps:
            raise MaxSteps(f"Agent exceeded {max_steps} tool round-trips")
        provider, model = self._services.providers.resolve(
            options.get("model") or agent.model or self._services.default_model
        )
        request = ModelRequest(
            model=model,
            system=await system_prompt(agent, self._contexts.of_prompt(), self._services.threads),
            messages=request_messages(self._rows),
            tools=[
                {"name": tool.name, "description": tool.description, "input_schema": tool.schema}
                for tool in agent.tools
            ],
            max_tokens=min(options.get("maxTokens", agent.max_tokens), agent.max_tokens),
            options=agent.provider_options,
        )
        await self._services.liveness.wait()
        call = ModelCall(
            provider,
            request,
            self._output.writer,
            stream_thinking=agent.stream_thinking,
            silence_s=agent.timeout_s,
        )
        try:
            streamed = await call.run()
        except Exception:
            if call.spent is not None:
                usage, model = call.spent
                self._progress = self._progress.plus_spent(usage, cost(model, usage))
            raise
        price = cost(streamed.turn.model, streamed.turn.usage)
        self._progress = self._progress.plus_step(streamed.turn.usage, price)
        return await self._output.flushed(streamed, self._rows), price

    def _assistant_turn(self, streamed: StreamedTurn, price: Cost) -> AssistantTurn:
        turn = streamed.turn
        return AssistantTurn(
            seq=self._rows[-1].seq + 1,
            content=turn.content,
            model=turn.model,
            usage=turn.usage.to_dict(),
            cost=price.to_dict(),
            stop_reason=turn.stop_reason,
            duration_ms=streamed.duration_ms,
            first_frame=streamed.first_frame,
            last_frame=streamed.last_frame,
        )

    def _plan(self, block: Block, broken_inputs: Mapping[str, str]) -> PlannedCall:
        tool = self._tools.get(block["name"])
        return PlannedCall(
            call_id=block["id"],
            name=block["name"],
            idempotent=tool is not None and tool.idempotent,
            refusal=broken_inputs.get(block["id"]),
        )

    async def _fail(self, error: RunyardError) -> Ending:
        last_frame = self._output.withdraw(self._rows)
        try:
            ledger = await self._services.database.read(turns.load_calls, self.held.run_id, self._rows[-1].seq)
            return await self._settle(self._failed(error, ledger, last_frame))
        except (Signal, StoreUnavailable):
            raise
        except Exception:  # noqa: BLE001 - see below
            # Nothing can be made of its rows. It ends all the same: given back, it would fail on every worker in turn.
            self._log.exception("run ends with its calls open")
            return await self._settle(self._failed(error, None, last_frame))

    def _failed(self, error: RunyardError, ledger: Sequence[Call] | None, last_frame: int) -> End:
        return settlement.failed(self._claim, self._progress, self._rows, ledger, error, last_frame=last_frame)

    async def _settle(self, end: End) -> Ending:
        await self._output.flush()
        await commit(
            self._services.database,
            turns.settle,
            self.held,
            end.settlement,
            self._progress.totals(),
            turn=end.turn,
            results=end.results,
            at=now_ms(),
        )
        return end.ending
