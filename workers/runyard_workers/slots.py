"""The process's slots: how many runs it executes at once. The broker's threads and the event loop share them."""

import threading
from collections.abc import Callable


class SlotPool:
    """A slot is reserved before a message is fetched, so that a full or leaving worker holds no message back.

    It passes from the thread that reserved it to the run, and is released when the run leaves the process. While
    `is_alive` returns False (the worker has no beat), no slot is given out.
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
        """How many are reserved or have a run in them."""
        return self.size - self._free

    def open(self) -> None:
        """Begin to give out slots: the worker is registered."""
        with self._changed:
            self._open = True
            self._changed.notify_all()

    def close(self) -> None:
        """Give out no more: the worker is leaving."""
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
