"""Models that play one script for each call, whatever the request is: for steps with several calls."""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, field

from tests.fakes.provider import MODEL, Script

from runyard.errors import ModelNotConfigured
from runyard_workers.providers.model import ModelEvent, ModelRequest, Provider
from runyard_workers.retries import RetryPolicy

NO_WAITS = RetryPolicy(first_wait_s=0)
"""As many attempts as ever, one right after the other."""


@dataclass(kw_only=True)
class QueuedModels(Provider):
    """As `runyard_workers.providers.registry.Providers`, and the provider of each of its models.

    The n-th call of a model plays the n-th script of its queue; a model without a queue is not configured.
    """

    name = "scripted"
    scripts: Mapping[str, Sequence[Script]]
    requests: list[ModelRequest] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._queues = {model: deque(scripts) for model, scripts in self.scripts.items()}

    @property
    def asked(self) -> list[str]:
        """The models that were asked, in order."""
        return [request.model for request in self.requests]

    def resolve(self, model: str | None) -> tuple[Provider, str]:
        if (name := model or MODEL) not in self._queues:
            raise ModelNotConfigured(f"no key for {name}")
        return self, name

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        self.requests.append(request)
        for step in self._queues[request.model].popleft():
            if isinstance(step, Exception):
                raise step
            if isinstance(step, asyncio.Event):
                await step.wait()
            elif callable(step):
                step()
            else:
                yield step
