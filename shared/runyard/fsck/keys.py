"""Every key that holds frames has a time to live, so Redis lets go of it by itself."""

import re
from collections.abc import AsyncIterator, Sequence
from typing import Any, cast

from redis.asyncio import Redis

from runyard.fsck.findings import Code, Finding
from runyard.streams.connect import answered

KEYS_A_CALL = 1_000
FOR_EVER = -1
"""https://redis.io/docs/latest/commands/pttl/"""

_GLOB = re.compile(r"([*?\[\]\\^-])")


class Keys:
    """`seen` counts the keys that were looked at. The broker's keys (`<prefix>:broker:...`), which dramatiq keeps, are
    not among them.
    """

    def __init__(self, client: Redis, *, prefix: str) -> None:
        self.seen = 0
        self._client = client
        self._pattern = _GLOB.sub(r"\\\1", prefix) + ":*"
        self._of_broker = f"{prefix}:broker:".encode()

    async def check(self) -> AsyncIterator[Finding]:
        """Walk over all keys of the server, a batch for each call.

        Raises:
            StoreUnavailable: Redis does not answer.
        """
        cursor = 0
        while True:
            async with answered():
                found = await self._client.scan(cursor, match=self._pattern, count=KEYS_A_CALL)
            cursor, keys = found[0], cast("list[bytes]", found[1])
            kept = [key for key in keys if not key.startswith(self._of_broker)]
            self.seen += len(kept)
            for key, left_ms in zip(kept, await self._left_ms(kept), strict=True):
                if left_ms == FOR_EVER:
                    yield Finding(code=Code.KEY_TTL, detail="it is kept for ever", key=key.decode(errors="replace"))
            if cursor == 0:
                return

    async def _left_ms(self, keys: Sequence[bytes]) -> list[Any]:
        if not keys:
            return []
        pipeline = self._client.pipeline(transaction=False)
        for key in keys:
            pipeline.pttl(key)
        async with answered():
            left: list[Any] = await pipeline.execute()
        return left
