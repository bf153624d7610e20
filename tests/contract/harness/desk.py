"""A small agent for tests of the harness, and the effects of its tools."""

from dataclasses import dataclass, field
from typing import Any

from runyard import RunContext, agent, tool
from runyard.authoring.agents import Agent


@dataclass(kw_only=True)
class Desk:
    """`paid`: the key of each time that money went out. `looked_up`: the same of a tool that may run again."""

    paid: list[str | None] = field(default_factory=list)
    looked_up: list[str | None] = field(default_factory=list)

    def agent(self, **options: Any) -> Agent:
        @tool
        async def refund(ctx: RunContext, order: str) -> str:
            """Pay an order back."""
            self.paid.append(ctx.idempotency_key)
            await ctx.stream.event("refunding", {"order": order})
            return f"order {order} is paid back"

        @tool(idempotent=True)
        def look_up(ctx: RunContext, order: str) -> dict[str, str]:
            """Look an order up."""
            self.looked_up.append(ctx.idempotency_key)
            return {"order": order, "state": "packed"}

        return agent(**{"system": "You serve customers.", "tools": [refund, look_up], **options})
