"""Which Redis process holds the frames."""

from redis.asyncio import Redis

from runyard.streams.connect import redis_run_id


class FrameServer:
    """`run_id` is what it was when it was asked last; `client` is its owner's to close."""

    def __init__(self, client: Redis) -> None:
        self._client = client
        self.run_id = ""

    async def ask(self) -> str:
        """The present run id; another one than before means that Redis restarted and may have lost frames.

        Raises:
            StoreUnavailable: it does not answer.
        """
        self.run_id = await redis_run_id(self._client)
        return self.run_id
