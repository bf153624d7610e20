"""A reader of server-sent events, written from the specification alone. It shares no code with the product.

https://html.spec.whatwg.org/multipage/server-sent-events.html#event-stream-interpretation
"""

import codecs
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True, slots=True)
class Event:
    """`type` is the event type buffer: empty where the stream named none (a browser would say "message")."""

    type: str
    data: str
    last_event_id: str
    id: str | None
    """The `id` field of this very event; None without one, where `last_event_id` is an earlier event's."""

    @property
    def seq(self) -> int | None:
        return None if self.id is None else int(self.id)


@dataclass(kw_only=True)
class EventStreamParser:
    """Bytes in, on whatever boundaries; events out. `comments` and `retries_ms` gather what is no event."""

    comments: list[str] = field(default_factory=list)
    retries_ms: list[int] = field(default_factory=list)
    last_event_id: str = ""
    _decoder: codecs.IncrementalDecoder = field(
        default_factory=lambda: codecs.getincrementaldecoder("utf-8")(errors="replace")
    )
    _line: str = ""
    _after_cr: bool = False
    _at_start: bool = True
    _type: str = ""
    _data: str = ""
    _id: str | None = None

    def feed(self, received: bytes) -> list[Event]:
        text = self._decoder.decode(received)
        if self._at_start and text:
            self._at_start = False
            text = text.removeprefix("\ufeff")
        events: list[Event] = []
        for character in text:
            if character == "\n" and self._after_cr:
                self._after_cr = False
                continue
            self._after_cr = character == "\r"
            if character in "\r\n":
                line, self._line = self._line, ""
                if (event := self._take(line)) is not None:
                    events.append(event)
            else:
                self._line += character
        return events

    @property
    def at_rest(self) -> bool:
        """Nothing is half read: a stream that ends here lost no event."""
        return not (self._line or self._type or self._data or self._id)

    def _take(self, line: str) -> Event | None:
        if not line:
            return self._dispatch()
        if line.startswith(":"):
            self.comments.append(line[1:])
            return None
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        match name:
            case "event":
                self._type = value
            case "data":
                self._data += value + "\n"
            case "id" if "\0" not in value:
                self._id = value
            case "retry" if value.isascii() and value.isdigit():
                self.retries_ms.append(int(value))
        return None

    def _dispatch(self) -> Event | None:
        if self._id is not None:
            self.last_event_id = self._id
        event = None
        if self._data:
            event = Event(
                type=self._type,
                data=self._data.removesuffix("\n"),
                last_event_id=self.last_event_id,
                id=self._id,
            )
        self._type, self._data, self._id = "", "", None
        return event
