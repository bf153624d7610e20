"""Splits a body of server-sent events into events, on whatever boundaries its bytes come.

https://html.spec.whatwg.org/multipage/server-sent-events.html#event-stream-interpretation
"""

import re
from typing import NamedTuple

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"

_USUAL = re.compile(rb"event: ([^\n]*)\ndata: ([^\n]+)")
"""An event as servers write it: read at once, it costs a quarter."""


class ServerSentEvent(NamedTuple):
    name: bytes
    """Empty when the event has none."""
    data: bytes
    """The `data` lines, joined by LF; never empty."""


class EventSplitter:
    """Lines end at CR, LF or CRLF and at nothing else. Comments, ids and unfinished events are dropped."""

    def __init__(self) -> None:
        self._unfinished: list[bytes] = []
        self._ended_in_lf = False
        self._ended_in_cr = False
        self._started = False

    def feed(self, received: bytes) -> list[ServerSentEvent]:
        """The events that `received` completes."""
        lines = self._with_lf_only(received)
        if not lines:
            return []
        blank_line = b"\n\n" in lines or (self._ended_in_lf and lines.startswith(b"\n"))
        self._ended_in_lf = lines.endswith(b"\n")
        self._unfinished.append(lines)
        if not blank_line:
            return []
        blocks = b"".join(self._unfinished).split(b"\n\n")
        self._unfinished = [blocks.pop()]
        return [event for block in blocks if (event := self._read(block)) is not None]

    def _with_lf_only(self, received: bytes) -> bytes:
        # A CR ends its line at once: waiting for the LF that may follow would hold an event back.
        if self._ended_in_cr and received.startswith(b"\n"):
            received = received[1:]
            self._ended_in_cr = False
        if not received:
            return received
        self._ended_in_cr = received.endswith(b"\r")
        if b"\r" not in received:
            return received
        return received.replace(b"\r\n", b"\n").replace(b"\r", b"\n")

    def _read(self, block: bytes) -> ServerSentEvent | None:
        if not self._started:
            self._started = True
            block = block.removeprefix(_BYTE_ORDER_MARK)
        usual = _USUAL.fullmatch(block)
        if usual is not None:
            return ServerSentEvent(*usual.groups())
        name = b""
        data: list[bytes] = []
        for line in block.split(b"\n"):
            field, _, value = line.partition(b":")
            if field == b"data":
                data.append(value.removeprefix(b" "))
            elif field == b"event":
                name = value.removeprefix(b" ")
        joined = b"\n".join(data)
        return ServerSentEvent(name, joined) if joined else None
