"""A worker's free slots, as a consumer of messages sees them; called from the consumers' threads."""

from typing import Protocol


class Slots(Protocol):
    def available(self) -> bool:
        """Whether a slot is free now."""
        ...

    def reserve(self, timeout_s: float) -> bool:
        """Reserve one, waiting for it; False when none became free in time."""
        ...

    def release(self) -> None: ...
