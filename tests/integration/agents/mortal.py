"""An agent whose tools are at work when their worker dies, or kill it."""

import os
import signal
from pathlib import Path

from runyard_agents._outside import FOLDER, act, wait_at
from runyard_agents.clerk import attend, charge, look_up

from runyard import RunContext, agent, tool

SPINS = 100_000
GATE_S = 600.0
"""A test that is slow to open a gate is still in time."""


@tool(timeout_s=GATE_S)
async def wait(ctx: RunContext, gate: str) -> str:
    """Act, then wait until the test opens a gate: it must not happen twice."""
    act(ctx, f"wait {ctx.call_id}")
    await wait_at(gate)
    act(ctx, f"waited {ctx.call_id}")
    return "let through"


@tool(idempotent=True, timeout_s=GATE_S)
async def wait_keyed(ctx: RunContext, gate: str) -> str:
    """The same, with a key by which the world outside tells a repetition."""
    act(ctx, f"wait_keyed {ctx.call_id} {ctx.idempotency_key}")
    await wait_at(gate)
    return "let through"


@tool(exclusive=True)
async def book(ctx: RunContext, order: str) -> dict:
    """Happen after all others of the batch, and not twice."""
    act(ctx, f"book {ctx.call_id}")
    return {"booked": order}


@tool(idempotent=True)
def die(ctx: RunContext) -> None:
    """As an out-of-memory killer does it."""
    act(ctx, f"die {ctx.call_id} {ctx.idempotency_key}")
    os.kill(os.getpid(), signal.SIGKILL)


@tool
def spin(ctx: RunContext, gate: str) -> str:
    """Burn the processor, and with it the interpreter's lock, until the test opens a gate."""
    (FOLDER / f"reached-{gate}").touch()
    opened: Path = FOLDER / f"gate-{gate}"
    while not opened.exists():
        for _ in range(SPINS):
            pass
    return "dizzy"


mortal = agent(system="You may die.", tools=[attend, charge, look_up, wait, wait_keyed, book, die, spin])
