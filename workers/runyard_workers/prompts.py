"""The system prompt: text, or a function of the context that is evaluated before every model call."""

import asyncio
import functools
import inspect

from runyard.authoring.agents import Agent
from runyard.authoring.context import RunContext
from runyard.errors import InternalError, RunTimeout
from runyard.text import clean_text
from runyard_workers.author_code import FailedError, TimedOutError, run_author_code
from runyard_workers.threads import ToolThreads


async def system_prompt(agent: Agent, context: RunContext, threads: ToolThreads) -> str | None:
    """The system prompt. None: the agent has none, or it is blank, which providers refuse. Cancelled, it leaves the
    author's function behind.

    Raises:
        RunTimeout: the author's function took longer than the agent's `timeout_s`.
        InternalError: it failed, or did not return a string.
    """
    system = agent.system
    text: object = system
    if callable(system):
        work = functools.partial(system, context)
        try:
            text = await run_author_code(
                work, is_async=inspect.iscoroutinefunction(system), timeout_s=agent.timeout_s, threads=threads
            )
        except TimedOutError:
            raise RunTimeout(f"the agent's system function took longer than {agent.timeout_s:g} s") from None
        except asyncio.CancelledError:
            context.cancelled.set()  # a thread cannot be stopped, but told
            raise
        except FailedError as failure:
            context.log.exception("system function failed", exc_info=failure.error)
            raise InternalError(f"the agent's system function failed ({type(failure.error).__name__})") from None
    if text is not None and not isinstance(text, str):
        raise InternalError(f"the agent's system function returned {type(text).__name__}, not a string")
    return clean_text(text) if text and text.strip() else None
