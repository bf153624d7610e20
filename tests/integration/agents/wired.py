"""An agent whose tool uses clients that the worker process opens once, on the loop that all runs share."""

import os
from collections.abc import AsyncIterator
from typing import Any

import httpx2
from redis.asyncio import Redis

from runyard import RunContext, agent, lifespan, tool


@lifespan
async def clients() -> AsyncIterator[dict[str, Any]]:
    counter = Redis.from_url(os.environ["RUNYARD_REDIS_URL"])
    async with httpx2.AsyncClient(base_url=os.environ["ANTHROPIC_BASE_URL"], trust_env=False) as http:
        yield {"counter": counter, "http": http}
    await counter.aclose()


@tool
async def count(ctx: RunContext) -> int:
    """Count up, and ask the model's server how it is."""
    response = await ctx.resources["http"].get("/_standin/counts")
    response.raise_for_status()
    return int(await ctx.resources["counter"].incr(f"{os.environ['RUNYARD_PREFIX']}:counter"))


wired = agent(system="You count.", tools=[count])
