"""The broker that `RUNYARD_BROKER_URL` names."""

import dramatiq

from runyard.errors import StartError
from runyard.queue import redis_broker
from runyard.queue.redis_broker import Slots


def connect(url: str, *, prefix: str, slots: Slots | None = None) -> dramatiq.Broker:
    """Build the broker; nothing connects before the first message is sent or fetched.

    Args:
        slots: a worker's free slots; without them the broker only sends.

    Raises:
        StartError: the URL's scheme has no broker.
    """
    if url.startswith(("redis://", "rediss://", "unix://")):
        return redis_broker.connect(url, namespace=f"{prefix}:broker", slots=slots)
    raise StartError("RUNYARD_BROKER_URL: RabbitMQ is not supported yet, use redis:// or unix://")
