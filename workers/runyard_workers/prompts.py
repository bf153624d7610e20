"""The system prompt: text, or a function of the context that is evaluated before every model call."""

import functools
import inspect
from collections.abc import Awaitable, Callable

from runyard.authoring.agents import Agent
from runyard.authoring.context import RunContext
from runyard.text import clean_text
from runyard_workers.contexts import Contexts
from runyard_workers.threads import ToolThreads


async def system_prompt(agent: Agent, contexts: Contexts, threads: ToolThreads) -> str | None:
    """None when the agent has none, or it is empty. A sync function runs in a tool's thread.

    Raises:
        Exception: whatever the author's function raises.
    """
    system = agent.system
    text = await _evaluate(system, contexts.of_prompt(), threads) if callable(system) else system
    return clean_text(text) if text else None


async def _evaluate(
    function: Callable[[RunContext], str | Awaitable[str]], context: RunContext, threads: ToolThreads
) -> str:
    if inspect.iscoroutinefunction(function):
        text = await function(context)
    else:
        text = await threads.submit(functools.partial(function, context)).outcome
    if not isinstance(text, str):
        raise TypeError(f"the agent's system function returned {type(text).__name__}, not a string")
    return text
