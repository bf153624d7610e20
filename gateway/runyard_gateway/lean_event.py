"""A small `asyncio.Event`, for connections that stay open for hours."""

import asyncio


class LeanEvent:
    """An event for one waiting task. `asyncio.Event` has a deque of waiters: 0.7 KB, twice for each connection."""

    __slots__ = ("_is_set", "_waiter")

    def __init__(self, *, is_set: bool = False) -> None:
        self._is_set = is_set
        self._waiter: asyncio.Future[None] | None = None

    def set(self) -> None:
        self._is_set = True
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def clear(self) -> None:
        self._is_set = False

    async def wait(self) -> bool:
        if not self._is_set:
            assert self._waiter is None, "one task waits at a time"
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        return True
