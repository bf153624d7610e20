"""The model calls of one step: attempts along the agent's chain of models until one yields a whole turn.

What a failed attempt has shown is withdrawn before the next begins, so two answers are never glued together.
"""

import asyncio
import functools
import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import structlog

from runyard.authoring.agents import Agent
from runyard.db.records import Message
from runyard.errors import FallbackExhausted, FallbacksUnavailable, ModelNotConfigured, ProviderError
from runyard.metrics import MODEL_ERRORS, MODEL_RETRIES
from runyard_workers import spans
from runyard_workers.output import Output
from runyard_workers.providers.model import ModelRequest
from runyard_workers.services import Services
from runyard_workers.turn import ModelCall, Spent, StreamedTurn

log = structlog.get_logger()


@dataclass(frozen=True, kw_only=True, slots=True)
class Asked:
    """What a step asks its models: the same request, under the name of each model. None: the agent names no model."""

    models: Sequence[str | None]
    request: ModelRequest
    rows: Sequence[Message]
    step: int


class Attempts:
    """`call`: the one under way; None between two. `spent`: what failed calls have cost.

    Once `stopped` is set its task is cancelled, and nothing more is tried, even if the call failed as it was closed.
    """

    def __init__(self, services: Services, agent: Agent, output: Output, stopped: asyncio.Event) -> None:
        self.call: ModelCall | None = None
        self.spent: list[Spent] = []
        self._stopped = stopped
        self._services = services
        self._agent = agent
        self._output = output
        self._asked: Asked
        self._models: deque[str | None]
        self._attempt = 1
        self._waited_s = 0.0
        self._has_shown = False
        self._errors: list[dict[str, Any]] = []
        self._may_pass = False

    async def run(self, asked: Asked) -> StreamedTurn:
        """Call one model after the other. May be called once.

        Raises:
            FallbackExhausted: all of them failed.
            ProviderError, ModelNotConfigured: the only one failed.
            RunTimeout: see `ModelCall.run`; nothing is tried after it.
        """
        self._asked, self._models = asked, deque(asked.models)
        while True:
            try:
                return await self._call(self._models[0])
            except (ProviderError, ModelNotConfigured) as error:
                self._note(error)
                wait_s = self._next_wait_s(error)
                if wait_s is None and len(self._asked.models) == 1:
                    raise
                if wait_s is None:
                    raise self._exhausted(error) from error
            if self._has_shown:
                self._output.take_back(self._asked.rows)
            self._output.status(
                "retrying", model=self._models[0], attempt=self._attempt, waitMs=math.ceil(wait_s * 1000)
            )
            MODEL_RETRIES.labels(self._models[0] or "").inc()
            await asyncio.sleep(wait_s)

    async def _call(self, model: str | None) -> StreamedTurn:
        self._has_shown = False
        provider, name = self._services.providers.resolve(model)
        await self._services.liveness.wait()
        request = replace(self._asked.request, model=name)
        call = self.call = ModelCall(
            provider,
            request,
            self._output.writer,
            stream_thinking=self._agent.stream_thinking,
            silence_s=self._agent.timeout_s,
            on_long=functools.partial(self._output.begin_anew, self._asked.rows),
            reset=functools.partial(self._output.reset, self._asked.rows),
        )
        try:
            with spans.calling_model(
                provider.name, request, call, step=self._asked.step, attempt=self._attempt
            ) as span:
                streamed = await call.run()
                spans.answered(span, streamed.turn)
                return streamed
        except Exception:
            if self._stopped.is_set():
                raise asyncio.CancelledError from None
            self.call = None
            self._has_shown = not call.shown.is_empty
            if call.spent is not None:
                self.spent.append(call.spent)
            raise

    def _note(self, error: ProviderError | ModelNotConfigured) -> None:
        told = {name: error.fields[name] for name in ("status", "type") if error.fields.get(name) is not None}
        model = self._models[0]
        MODEL_ERRORS.labels(model or "", error.code).inc()
        self._errors.append({"model": model, "code": error.code, "message": error.message, **told})
        self._may_pass = self._may_pass or error.retryable
        log.warning(
            "model attempt failed",
            run_id=self._asked.rows[-1].run_id,
            model=model,
            attempt=self._attempt,
            code=error.code,
            **told,
        )

    def _next_wait_s(self, error: ProviderError | ModelNotConfigured) -> float | None:
        """Choose the next attempt: the same model, or the next one. Returns the wait before it; None: none is left."""
        wait_s = self._services.retries.wait_s(error, attempt=self._attempt, waited_s=self._waited_s)
        if wait_s is not None:
            self._attempt += 1
            self._waited_s += wait_s
            return wait_s
        if len(self._models) == 1:
            return None
        self._models.popleft()
        self._attempt, self._waited_s = 1, 0.0
        return 0.0

    def _exhausted(self, last: ProviderError | ModelNotConfigured) -> FallbackExhausted:
        kind = FallbacksUnavailable if self._may_pass else FallbackExhausted
        count = len(self._asked.models)
        return kind(
            f"all {count} models failed; the last one: {last.message}",
            attempts=len(self._errors),
            errors=self._errors,
        )
