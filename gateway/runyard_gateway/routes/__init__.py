"""Every route that needs a caller, in one table; each noun has its module."""

from runyard_gateway.routes import (
    agents,
    feed,
    functions,
    invocations,
    messages,
    queues,
    rooms,
    runs,
    steering,
    streams,
)

OPERATIONS = (
    *agents.OPERATIONS,
    *functions.OPERATIONS,
    *runs.OPERATIONS,
    *messages.OPERATIONS,
    *invocations.OPERATIONS,
    *steering.OPERATIONS,
    *streams.OPERATIONS,
    *feed.OPERATIONS,
    *queues.OPERATIONS,
    *rooms.OPERATIONS,
)
