"""What a consumer of messages needs of a worker's slots. Called from the consumers' threads."""

from typing import Protocol


class Slots(Protocol):
    def available(self, timeout_s: float = 0) -> bool:
        """Wait until a slot is free; False: none was in time. Another thread may take it before it is reserved."""
        ...

    def reserve(self, timeout_s: float) -> bool:
        """Wait for a free slot and reserve it. False: none became free in time."""
        ...

    def release(self) -> None: ...
