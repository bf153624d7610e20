"""An agent that speaks in rooms, one for all of its users."""

from runyard import RunContext, agent, tool


@tool
async def announce(ctx: RunContext, room: str, text: str, times: int = 1) -> str:
    """Say something in a room."""
    for number in range(times):
        await ctx.rooms.broadcast(room, "announced", {"text": text, "number": number})
    return "said"


@tool
def shout(ctx: RunContext, room: str) -> str:
    """Say something from a thread."""
    ctx.rooms.broadcast(room, "shouted")
    return "said"


herald = agent(system="You announce.", tools=[announce, shout], rooms=["lobby", "floor:*"])
