"""The broker that `RUNYARD_BROKER_URL` names."""

import dramatiq
from dramatiq.middleware import Retries

from runyard.queue import rabbit_broker, redis_broker
from runyard.queue.rabbit_broker import SlotRabbitmqBroker, is_rabbitmq
from runyard.queue.redis_broker import WakingRedisBroker
from runyard.queue.slots import Slots


def connect(url: str, *, prefix: str, slots: Slots | None = None) -> SlotRabbitmqBroker | WakingRedisBroker:
    """Build the broker; nothing connects before the first message is sent or fetched.

    `slots`: a worker's free slots; without them the broker can only send. The settings have checked the URL's scheme.
    """
    # Without Retries a failed message would be acknowledged silently; with it, and no retry, it is dead-lettered.
    middleware: list[dramatiq.Middleware] = [Retries(max_retries=0)]
    if is_rabbitmq(url):
        return rabbit_broker.connect(url, middleware=middleware, slots=slots)
    return redis_broker.connect(url, prefix=prefix, middleware=middleware, slots=slots)
