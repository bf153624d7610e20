"""An agent with a tool of every kind that the loop tells apart."""

import time

from runyard_agents._outside import act, reach, wait_at

from runyard import RunContext, agent, tool


@tool
async def charge(ctx: RunContext, order: str, amount: float = 1.0) -> dict:
    """Take money: it must not happen twice."""
    act(ctx, f"charge {order} {ctx.call_id}")
    return {"order": order, "charged": amount}


@tool(idempotent=True)
def look_up(ctx: RunContext, order: str) -> dict:
    """Read an order; in a thread."""
    act(ctx, f"look_up {order} {ctx.call_id}")
    return {"order": order, "state": "open"}


@tool
async def hold(ctx: RunContext, gate: str) -> str:
    """Wait until the test opens a gate."""
    act(ctx, f"hold {gate}")
    await wait_at(gate)
    return "let through"


@tool
async def attend(ctx: RunContext, gate: str) -> str:
    """Wait until somebody stops the run."""
    act(ctx, f"attend {gate}")
    reach(gate)
    await ctx.cancelled.wait()
    return "stopped early"


@tool
async def narrate(ctx: RunContext, parts: list[str]) -> str:
    """Show the readers what goes on."""
    for part in parts:
        await ctx.stream.write(part)
        await ctx.stream.event("progress", {"part": part})
    return "told"


@tool
def explode(text: str) -> str:
    """Fail."""
    raise ValueError(text)


@tool
def nap(seconds: float) -> str:
    """Keep a thread busy for a while."""
    time.sleep(seconds)  # a sync tool that takes its time, in a thread: what is tested goes on beside it
    return "awake"


clerk = agent(system="You keep the books.", tools=[charge, look_up, hold, attend, narrate, explode, nap])
