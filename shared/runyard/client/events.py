"""Reads server-sent events from bytes, however they are cut.

https://html.spec.whatwg.org/multipage/server-sent-events.html#event-stream-interpretation

`httpx2.AsyncClient.sse` does not do: it gives every event the last id that was seen, so that what a gateway says
without a number cannot be told from frames, and calls events without a name "message", which one of ours has.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

_LINE_END = re.compile(rb"\r\n|\n|\r")
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


@dataclass(frozen=True, kw_only=True, slots=True)
class ServerEvent:
    """One event. `name` and `id` are None if the event itself has none."""

    name: str | None
    id: str | None
    data: str


class EventReader:
    """Reads the body of one answer. An event that the body ends in the middle of does not count."""

    def __init__(self) -> None:
        self.retry_ms: int | None = None
        """How long to wait before the next connection, as the server said last."""
        self._rest: list[bytes] = []
        self._after_cr = False
        self._at_start = True
        self._name: str | None = None
        self._id: str | None = None
        self._data: list[str] = []

    def feed(self, received: bytes) -> Iterator[ServerEvent]:
        """The events that are complete with what was received. Read them all before feeding more."""
        for line in self._lines(received):
            if line:
                self._take(line)
            elif (event := self._dispatched()) is not None:
                yield event

    def _lines(self, received: bytes) -> Iterator[bytes]:
        if self._after_cr and received:
            self._after_cr = False
            received = received.removeprefix(b"\n")  # its CR ended the line already
        self._after_cr = received.endswith(b"\r")
        *ended, rest = _LINE_END.split(received)
        for end in ended:
            line = b"".join([*self._rest, end])
            self._rest.clear()
            yield self._without_mark(line)
        if rest:
            self._rest.append(rest)

    def _without_mark(self, line: bytes) -> bytes:
        if self._at_start:
            self._at_start = False
            return line.removeprefix(_BYTE_ORDER_MARK)
        return line

    def _take(self, line: bytes) -> None:
        field, _, value = line.decode(errors="replace").partition(":")
        value = value.removeprefix(" ")
        match field:
            case "event":
                self._name = value or None
            case "data":
                self._data.append(value)
            case "id" if "\0" not in value:
                self._id = value
            case "retry" if value.isascii() and value.isdigit():
                self.retry_ms = int(value)

    def _dispatched(self) -> ServerEvent | None:
        event = None
        if self._data:
            event = ServerEvent(name=self._name, id=self._id, data="\n".join(self._data))
        self._name, self._id, self._data = None, None, []
        return event
