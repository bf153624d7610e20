"""A worker's free slots, as a consumer of messages sees them; called from the consumers' threads."""

from typing import Protocol


class Slots(Protocol):
    def available(self, timeout_s: float = 0) -> bool:
        """Whether a slot is free, waiting for one; it may be taken by the time it is reserved."""
        ...

    def reserve(self, timeout_s: float) -> bool:
        """Reserve one, waiting for it. False: none became free in time."""
        ...

    def release(self) -> None: ...
