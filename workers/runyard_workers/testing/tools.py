"""Tools as a harness runs them: the author's own, with a record of each execution and a moment before and after it."""

import asyncio
import concurrent.futures
import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from runyard.authoring.context import RunContext
from runyard.authoring.tools import Tool
from runyard.ids import RunId
from runyard_workers.testing.errors import WorkerCrashed
from runyard_workers.testing.moments import Moments, When

CONTEXT = "runyard_context"
"""The parameter that passes the context to a watched tool, whether or not the author's own takes one."""

T = TypeVar("T", bound=Tool)


@dataclass(frozen=True, kw_only=True)
class ToolExecution:
    """One execution of a tool's function. `arguments` are without the context."""

    tool: str
    arguments: dict[str, Any]
    run_id: RunId
    call_id: str | None
    idempotency_key: str | None


@dataclass(kw_only=True)
class Watch:
    """Watches the tools of one harness. `executions` are in the order in which they began."""

    moments: Moments
    loop: asyncio.AbstractEventLoop
    executions: list[ToolExecution] = field(default_factory=list)

    def wrap(self, tool: T) -> T:
        """The same tool, with a record of each execution and a moment before and after it."""
        handler = self._async_handler(tool) if tool.is_async else self._sync_handler(tool)
        return replace(tool, handler=handler, context_parameter=CONTEXT)

    def _async_handler(self, tool: Tool) -> Callable[..., Awaitable[Any]]:
        async def handler(**arguments: Any) -> Any:
            await self.moments.reached("before", tool.name)
            value = await self._begun(tool, arguments)
            await self.moments.reached("after", tool.name)
            return value

        return handler

    def _sync_handler(self, tool: Tool) -> Callable[..., Any]:
        async def rest(value: Awaitable[Any]) -> Any:
            awaited = await value
            await self.moments.reached("after", tool.name)
            return awaited

        def handler(**arguments: Any) -> Any:
            self._reached("before", tool.name)
            value = self._begun(tool, arguments)
            if inspect.isawaitable(value):
                return rest(value)
            self._reached("after", tool.name)
            return value

        return handler

    def _begun(self, tool: Tool, arguments: dict[str, Any]) -> Any:
        context: RunContext = arguments.pop(CONTEXT)
        self.executions.append(
            ToolExecution(
                tool=tool.name,
                arguments=dict(arguments),
                run_id=context.run_id,
                call_id=context.call_id,
                idempotency_key=context.idempotency_key,
            )
        )
        if tool.context_parameter is not None:
            arguments[tool.context_parameter] = context
        return tool.handler(**arguments)

    def _reached(self, when: When, tool: str) -> None:
        """Report, from a tool's thread, that a moment has come, and wait until what the test planned for it is done."""
        try:
            asyncio.run_coroutine_threadsafe(self.moments.reached(when, tool), self.loop).result()
        except concurrent.futures.CancelledError:
            raise WorkerCrashed from None
