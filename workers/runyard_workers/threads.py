"""Threads for sync tools: as many as the process has slots, and never fewer.

A tool that overstays its timeout cannot be stopped: its thread is abandoned and another takes its place. Threads are
daemons: at exit they are left, never joined.
"""

import asyncio
import contextlib
import contextvars
import queue
import threading
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")

Outcome = tuple[Any, BaseException | None]
"""What the work returned, or what it raised. Never an exception of the future: nobody might ask for it."""


class ThreadCall:
    """One call in the pool. `started` and `outcome` belong to the event loop that asked for it."""

    def __init__(self, work: Callable[[], Any], loop: asyncio.AbstractEventLoop) -> None:
        self.started: asyncio.Future[None] = loop.create_future()
        self.outcome: asyncio.Future[Outcome] = loop.create_future()
        self._work = work
        self._loop = loop
        self._context = contextvars.copy_context()
        self._lock = threading.Lock()
        self._running = False
        self._abandoned = False

    def run(self) -> bool:
        """Run in the calling thread; whether that thread still belongs to the pool afterwards."""
        with self._lock:
            if self._abandoned:
                return True
            self._running = True
        self._tell(self.started, None)
        try:
            outcome: Outcome = self._context.run(self._work), None
        except BaseException as error:  # noqa: BLE001 - a tool's SystemExit is its failure, not the thread's end
            outcome = None, error
        self._tell(self.outcome, outcome)
        with self._lock:
            self._running = False
            return not self._abandoned

    def abandon(self) -> bool:
        """Give up on the call, on the event loop; whether a thread is lost to it."""
        self.started.cancel()
        self.outcome.cancel()
        with self._lock:
            self._abandoned = True
            return self._running

    def _tell(self, future: asyncio.Future[T], result: T) -> None:
        def settle() -> None:
            if not future.done():
                future.set_result(result)

        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody asks any more
            self._loop.call_soon_threadsafe(settle)


class ToolThreads:
    def __init__(self, size: int) -> None:
        self._size = size
        self._waiting: queue.SimpleQueue[ThreadCall] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._alive = 0
        self._idle = 0
        self._queued = 0

    def busy(self) -> int:
        """How many of the pool's threads run something; from any thread."""
        with self._lock:
            return self._alive - self._idle

    def submit(self, work: Callable[[], Any]) -> ThreadCall:
        """Run `work` in a thread, with the caller's context variables; called on the event loop."""
        call = ThreadCall(work, asyncio.get_running_loop())
        with self._lock:
            if self._queued >= self._idle and self._alive < self._size:
                self._add_thread()
            self._queued += 1
        self._waiting.put(call)
        return call

    def abandon(self, call: ThreadCall) -> None:
        """Give up on a call: whatever it still does, its thread no longer counts and another takes its place."""
        if call.abandon():
            with self._lock:
                self._alive -= 1
                self._add_thread()

    def _add_thread(self) -> None:
        threading.Thread(target=self._serve, name="tool", daemon=True).start()  # may fail: then nothing is counted
        self._alive += 1

    def _serve(self) -> None:
        belongs = True
        while belongs:
            with self._lock:
                self._idle += 1
            call = self._waiting.get()
            with self._lock:
                self._idle -= 1
                self._queued -= 1
            belongs = call.run()
            del call  # a thread that waits keeps no result alive
