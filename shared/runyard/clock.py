"""Wall-clock time as every row stores it, BIGINT epoch milliseconds, and as UTC ISO 8601 on the wire."""

import time
from datetime import UTC, datetime


def now_ms() -> int:
    """Epoch milliseconds. Times of two machines are never compared: liveness uses each watcher's monotonic clock."""
    return time.time_ns() // 1_000_000


def to_iso(epoch_ms: int) -> str:
    """`1764460800123` -> `"2025-11-30T00:00:00.123Z"`."""
    moment = datetime.fromtimestamp(epoch_ms / 1000, UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{epoch_ms % 1000:03d}Z"
