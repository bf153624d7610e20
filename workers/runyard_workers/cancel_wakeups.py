"""Listens for cancels. If an announcement is lost, the beat finds the cancel in the row within 2 s."""

from collections.abc import Callable

from redis.asyncio import Redis

from runyard.ids import RunId
from runyard.streams.cancels import cancel_channel
from runyard.streams.subscription import Subscription


def cancel_subscription(
    client: Redis, prefix: str, look_at: Callable[[RunId], None], *, reached: Callable[[], None]
) -> Subscription:
    """The caller runs it. Every worker hears every cancel, since they are few; the one that has the run reads its row.

    `reached`: called after each connection to Redis, the first one included.
    """
    subscription = Subscription(
        client,
        on_message=lambda _channel, run_id: look_at(RunId(run_id.decode(errors="replace"))),
        on_subscribed=lambda _channel: reached(),
    )
    subscription.add(cancel_channel(prefix).encode())
    return subscription
