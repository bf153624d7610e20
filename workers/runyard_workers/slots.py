"""The process's slots: how many runs it executes at once, shared by the broker's threads and the event loop."""

import threading
from collections.abc import Callable


class SlotPool:
    """Slots are reserved before a message is fetched, so a full or draining worker holds no message back.

    A slot goes from whoever reserved it to the run, and is released when the run leaves the process. While `is_alive`
    says no (the worker has no beat), nothing is handed out.
    """

    def __init__(self, size: int, *, is_alive: Callable[[], bool] = lambda: True) -> None:
        self.size = size
        self._is_alive = is_alive
        self._free = size
        self._open = False
        self._changed = threading.Condition()

    def available(self, timeout_s: float = 0) -> bool:
        with self._changed:
            return self._changed.wait_for(self._can_reserve, timeout_s)

    def taken(self) -> int:
        """Reserved, or with a run in them."""
        return self.size - self._free

    def open(self) -> None:
        """Begin to hand out slots: the worker is registered."""
        with self._changed:
            self._open = True
            self._changed.notify_all()

    def close(self) -> None:
        """Hand out no more: the worker leaves."""
        with self._changed:
            self._open = False

    def reserve(self, timeout_s: float) -> bool:
        """Reserve a slot; blocks the calling thread for at most `timeout_s`."""
        with self._changed:
            if not self._changed.wait_for(self._can_reserve, timeout_s):
                return False
            self._free -= 1
            return True

    def release(self) -> None:
        with self._changed:
            self._free += 1
            self._changed.notify_all()  # one that only asks whether a slot is free must not be the one that is woken

    def _can_reserve(self) -> bool:
        return self._open and self._free > 0 and self._is_alive()
