"""The model's part of a step: the request made from the rows, the call, and the turn that comes of it,
even if stopped.
"""

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from runyard.authoring.agents import Agent
from runyard.db.claims import Claim
from runyard.db.records import Message
from runyard.db.transcripts import AssistantTurn
from runyard.errors import MaxSteps
from runyard.metrics import COST, FIRST_TOKEN_SECONDS, STEP_SECONDS, TOKENS
from runyard.runs import FinishReason
from runyard.transcript import request_messages
from runyard_workers.attempts import Asked, Attempts
from runyard_workers.contexts import Contexts
from runyard_workers.output import Output
from runyard_workers.prices import Cost, cost
from runyard_workers.progress import Progress
from runyard_workers.prompts import system_prompt
from runyard_workers.providers.model import ModelRequest, Usage
from runyard_workers.services import Services
from runyard_workers.turn import ModelCall, StreamedTurn


@dataclass(frozen=True, kw_only=True, slots=True)
class Step:
    """A turn. `broken_inputs`: for calls whose input could not be read, what the model is told. `result_fields`:
    further fields of the invocation's result, if this turn ends it.
    """

    turn: AssistantTurn
    broken_inputs: Mapping[str, str] = field(default_factory=dict)
    result_fields: Mapping[str, Any] = field(default_factory=dict)


class StoppedError(Exception):
    """The call was stopped on purpose. `turn`: the text so far, never a part of a tool call; None: there was none."""

    def __init__(self, turn: AssistantTurn | None) -> None:
        super().__init__()
        self.turn = turn


class Steps(Protocol):
    """Where an execution gets its turns from. `progress`: what they have cost; replaced when the run is loaded."""

    progress: Progress

    def stop(self) -> None:
        """The run is cancelled: a turn under way ends with `StoppedError`."""

    async def call(self, rows: Sequence[Message]) -> Step:
        """The turn that follows these rows.

        Raises:
            StoppedError: `stop` was called.
            RunyardError: the run fails with it.
        """
        ...

    def unsaid(self, rows: Sequence[Message]) -> AssistantTurn | None:
        """What readers have seen and no row has yet. A run that is cancelled after these rows stores it as a turn."""
        ...

    def is_ending(self, rows: Sequence[Message]) -> bool:
        """Whether nothing is left to do after these rows but to settle, so that there is nothing to hand over."""
        ...


class ModelSteps:
    """Calls the model for one execution, one step at a time. `progress` counts every call, including failed ones."""

    def __init__(self, services: Services, claim: Claim, agent: Agent, output: Output, contexts: Contexts) -> None:
        self.progress = Progress.stored(claim.run, claim.invocation)
        self._services = services
        self._options: dict[str, Any] = claim.invocation.options
        self._agent = agent
        self._agent_name = claim.run.agent
        self._claimed_at = None if claim.is_takeover else time.monotonic()
        self._output = output
        self._contexts = contexts
        self._task: asyncio.Task[StreamedTurn] | None = None
        self._stopped = asyncio.Event()
        self._tools = [
            {"name": tool.name, "description": tool.description, "input_schema": tool.schema} for tool in agent.tools
        ]

    def stop(self) -> None:
        """Abort the call under way: the provider's connection closes at once. So does the system prompt's function."""
        self._stopped.set()
        if self._task is not None:
            self._task.cancel()

    async def call(self, rows: Sequence[Message]) -> Step:
        """The turn of one step.

        Raises:
            MaxSteps: the invocation has made as many steps as it may.
            StoppedError: `stop` was called.
            ProviderError, ModelNotConfigured, FallbackExhausted, RunTimeout: see `Attempts.run`.
        """
        max_steps = min(self._options.get("maxSteps", self._agent.max_steps), self._agent.max_steps)
        if self.progress.steps >= max_steps:
            raise MaxSteps(f"Agent exceeded {max_steps} tool round-trips")
        attempts = Attempts(self._services, self._agent, self._output, self._stopped)
        self._task = asyncio.create_task(self._streamed(attempts, rows))
        try:
            streamed = await self._task
        except asyncio.CancelledError:
            if not self._stopped.is_set() or _is_dropped():
                if attempts.call is not None and attempts.call.spent is not None:
                    attempts.spent.append(attempts.call.spent)
                raise
            raise StoppedError(self._stopped_turn(attempts.call, rows)) from None
        finally:
            self._task = None
            for spent in attempts.spent:
                price = cost(spent.model, spent.usage)
                _count(spent.model, spent.usage, price)
                self.progress = self.progress.plus_spent(spent.usage, price)
        return await self._step(streamed, rows)

    def unsaid(self, rows: Sequence[Message]) -> None:  # noqa: ARG002 - a model's words are in a row at each boundary
        return None

    def is_ending(self, rows: Sequence[Message]) -> bool:  # noqa: ARG002 - only the model knows
        return False

    async def _streamed(self, attempts: Attempts, rows: Sequence[Message]) -> StreamedTurn:
        return await attempts.run(await self._asked(rows))

    async def _asked(self, rows: Sequence[Message]) -> Asked:
        """The chain of models, and what they are asked. A caller's own model replaces the first of the chain."""
        agent, options = self._agent, self._options
        head = options.get("model") or agent.model or self._services.default_model
        models = dict.fromkeys(model for model in (head, *agent.fallbacks) if model)
        request = ModelRequest(
            model="",
            system=await system_prompt(agent, self._contexts.of_prompt(), self._services.threads),
            messages=request_messages(rows),
            tools=self._tools,
            max_tokens=min(options.get("maxTokens", agent.max_tokens), agent.max_tokens),
            options=agent.provider_options,
        )
        return Asked(models=[*models] or [None], request=request, rows=rows, step=self.progress.steps + 1)

    async def _step(self, streamed: StreamedTurn, rows: Sequence[Message]) -> Step:
        price = cost(streamed.turn.model, streamed.turn.usage)
        _count(streamed.turn.model, streamed.turn.usage, price)
        STEP_SECONDS.labels(self._agent_name, streamed.turn.model).observe(streamed.duration_ms / 1000)
        if self._claimed_at is not None and streamed.first_at is not None:
            FIRST_TOKEN_SECONDS.labels(self._agent_name).observe(streamed.first_at - self._claimed_at)
        self._claimed_at = None
        self.progress = self.progress.plus_step(streamed.turn.usage, price)
        turn = streamed.turn
        stored = AssistantTurn(
            seq=rows[-1].seq + 1,
            content=turn.content,
            model=turn.model,
            usage=turn.usage.to_dict(),
            cost=price.to_dict(),
            stop_reason=turn.stop_reason,
            duration_ms=streamed.duration_ms,
            first_frame=streamed.first_frame,
            last_frame=streamed.last_frame,
        )
        return Step(turn=await self._output.flushed(stored, rows), broken_inputs=turn.broken_inputs)

    def _stopped_turn(self, call: ModelCall | None, rows: Sequence[Message]) -> AssistantTurn | None:
        """What was said before the stop, as a turn. None: nothing was, or what was said had been withdrawn."""
        if call is None or call.spent is None:
            return None
        spent, text = call.spent, "".join(call.shown.said)
        price = cost(spent.model, spent.usage)
        _count(spent.model, spent.usage, price)
        self.progress = self.progress.plus_step(spent.usage, price)
        if not text:
            return None
        return AssistantTurn(
            seq=rows[-1].seq + 1,
            content=[{"type": "text", "text": text}],
            model=spent.model,
            usage=spent.usage.to_dict(),
            cost=price.to_dict(),
            stop_reason=FinishReason.CANCELLED,
            duration_ms=call.duration_ms,
            first_frame=call.shown.first_frame,
            last_frame=self._output.writer.last,
        )


def _count(model: str, usage: Usage, price: Cost) -> None:
    for kind in ("input_tokens", "output_tokens", "cache_creation_input_tokens", "cache_read_input_tokens"):
        if tokens := getattr(usage, kind):
            TOKENS.labels(model, kind).inc(tokens)
    COST.labels(model).inc(float(price.amount))


def _is_dropped() -> bool:
    """Whether the execution's own task is being cancelled, and not only the model's call."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
