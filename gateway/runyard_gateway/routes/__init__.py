"""The table of all routes that need a caller; each noun has a module."""

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
