"""Limits for the size of a request's head and for slow requests, so that no stalled caller keeps a connection for ever.

The counting happens here; `guarded_protocol.py` asks at each read, and closes the connection.
"""

HEAD_MAX_BYTES = 65_536
"""Of the request line, the headers and the trailers together. Proxies allow less: nginx 32 KiB, AWS's balancer 64 K."""

GRACE_S = 20.0
MIN_RATE = 500
"""Bytes a second after the grace period. https://httpd.apache.org/docs/2.4/mod/mod_reqtimeout.html has these defaults.
"""


class Reception:
    """The reception of one request at a time on one connection. Times are the event loop's, in seconds."""

    __slots__ = ("_began_s", "_head_bytes", "_received_bytes", "_unread_bytes", "is_owed")

    def __init__(self) -> None:
        self.is_owed = False
        """The caller has begun a request and not ended it."""
        self._began_s = 0.0
        self._received_bytes = 0
        self._head_bytes = 0
        self._unread_bytes = 0

    @property
    def is_head_too_large(self) -> bool:
        return self._head_bytes + self._unread_bytes > HEAD_MAX_BYTES

    def begin(self, now_s: float) -> None:
        self.is_owed = True
        self._began_s = now_s
        self._received_bytes = self._head_bytes = self._unread_bytes = 0

    def read(self, size_bytes: int) -> None:
        """So many bytes came. Until `head` or `body` is called, they belong to a field that has not ended."""
        self._received_bytes += size_bytes
        self._unread_bytes += size_bytes

    def head(self, size_bytes: int) -> None:
        self._head_bytes += size_bytes
        self._unread_bytes = 0

    def body(self) -> None:
        self._unread_bytes = 0

    def end(self) -> None:
        self.is_owed = False

    def forgive(self, now_s: float) -> None:
        """Start the caller's time again, since the delay was not its fault."""
        self._began_s = now_s

    def left_s(self, now_s: float, *, is_answered: bool) -> float:
        """Seconds until the request must have arrived. A request that was answered already gets no more than the grace
        period.
        """
        earned_s = 0.0 if is_answered else self._received_bytes / MIN_RATE
        return self._began_s + GRACE_S + earned_s - now_s
