"""Hears of cancels the moment they are committed. A missed one is found within 2 s by the beat, in the row."""

from collections.abc import Callable

from redis.asyncio import Redis

from runyard.ids import RunId
from runyard.streams.cancels import cancel_channel
from runyard.streams.subscription import Subscription


def cancel_subscription(
    client: Redis, prefix: str, look_at: Callable[[RunId], None], *, reached: Callable[[], None]
) -> Subscription:
    """Whoever makes it runs it. Every worker hears of every cancel, since they are few; only the one that has the run
    reads its row. `reached`: called whenever Redis is there, at first or again.
    """
    subscription = Subscription(
        client,
        on_message=lambda _channel, run_id: look_at(RunId(run_id.decode(errors="replace"))),
        on_subscribed=lambda _channel: reached(),
    )
    subscription.add(cancel_channel(prefix).encode())
    return subscription
