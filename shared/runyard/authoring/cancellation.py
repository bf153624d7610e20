"""`ctx.cancelled`: how a tool learns that its run is being cancelled."""

import asyncio
import contextlib
import threading


class Cancellation:
    """Set once, never cleared. Every method may be called from any thread; `wait` from any event loop.

    The worker sets it; a synchronous tool looks at `is_set()` between its steps, an asynchronous one may `await
    wait()` beside its work.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._set = False
        self._waiters: set[asyncio.Future[None]] = set()

    def set(self) -> None:
        with self._lock:
            self._set = True
            waiters, self._waiters = self._waiters, set()
        for waiter in waiters:
            with contextlib.suppress(RuntimeError):  # its loop, one of the author's, is closed: nobody waits there
                waiter.get_loop().call_soon_threadsafe(_wake, waiter)

    def is_set(self) -> bool:
        return self._set

    async def wait(self) -> None:
        """Return when the run is being cancelled, at once if it already is."""
        with self._lock:
            if self._set:
                return
            waiter = asyncio.get_running_loop().create_future()
            self._waiters.add(waiter)
        try:
            await waiter
        finally:
            with self._lock:
                self._waiters.discard(waiter)


def _wake(waiter: asyncio.Future[None]) -> None:
    # Its task may have been cancelled between the call and this turn of the loop.
    if not waiter.done():
        waiter.set_result(None)
