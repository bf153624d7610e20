"""An agent whose steps take as long as in the world: workers are killed in the middle of them."""

import asyncio

from runyard_agents._outside import act

from runyard import RunContext, agent, tool


@tool
async def pay(ctx: RunContext, order: str, seconds: float) -> dict:
    """Pay an order, half way through the time that it takes: it must not happen twice."""
    await asyncio.sleep(seconds / 2)
    act(ctx, f"pay {order} {ctx.call_id}")
    await asyncio.sleep(seconds / 2)
    return {"paid": order}


@tool(idempotent=True)
def balance(ctx: RunContext, order: str) -> dict:
    """Look at an order; in a thread."""
    act(ctx, f"balance {order} {ctx.call_id}")
    return {"order": order, "open": False}


teller = agent(system="You pay what is owed.", tools=[pay, balance])
