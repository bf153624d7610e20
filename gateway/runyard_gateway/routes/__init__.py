"""Every route that needs a caller, in one table; each noun has its module."""

from runyard_gateway.routes import agents, invocations, runs, steering, streams

OPERATIONS = (*agents.OPERATIONS, *runs.OPERATIONS, *invocations.OPERATIONS, *steering.OPERATIONS, *streams.OPERATIONS)
