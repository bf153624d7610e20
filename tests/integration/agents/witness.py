"""An agent whose tool tells whom it works for."""

from runyard import RunContext, agent, tool


@tool
def testify(ctx: RunContext) -> dict:
    """Tell all that the context says of the caller."""
    return {
        "runId": ctx.run_id,
        "agent": ctx.agent,
        "userId": ctx.user_id,
        "tenantId": ctx.tenant_id,
        "roles": sorted(ctx.roles),
        "context": ctx.context,
    }


witness = agent(system="You saw it.", tools=[testify])
