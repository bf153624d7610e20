"""An agent on a queue of its own, for workers that a test kills or keeps short."""

from runyard import RunContext, agent, tool


@tool(idempotent=True)
async def note(ctx: RunContext, text: str) -> str:
    """Write something down, and say so on the way."""
    await ctx.stream.event("noted", {"text": text})
    return f"noted: {text}"


scribe = agent(system="You write.", tools=[note], queue="scribe")
