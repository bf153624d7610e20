"""`ctx.stream`: what a tool writes while it works."""

import re
from collections.abc import Generator
from typing import Any, Protocol

from runyard.authoring.json_values import to_json
from runyard.frames import RESERVED_EVENTS
from runyard.text import clean_text

_EVENT_NAME = re.compile(r"[!-9;-~]{1,64}")
"""Printable ASCII without space and colon: an SSE field value on one line that every parser reads alike."""


class StreamSink(Protocol):
    """Where the worker takes frames from a tool. Called from any thread; returns at once; keeps the order of calls."""

    def output(self, text: str) -> None:
        """Clean text, not empty."""

    def event(self, name: str, data: Any) -> None:
        """A name that is not reserved, and clean JSON values."""


class Done:
    """Awaiting it does nothing, and not awaiting it causes no warning."""

    def __await__(self) -> Generator[Any, None, None]:
        return
        yield


DONE = Done()


class Stream:
    """The frames of one tool call. Each method takes effect at once, from any thread; awaiting it is allowed but not
    needed.

    So `await ctx.stream.event(...)` in an asynchronous tool and `ctx.stream.event(...)` in a synchronous one do the
    same.
    """

    def __init__(self, sink: StreamSink) -> None:
        self._sink = sink

    def write(self, text: str) -> Done:
        """Show text to the readers of the run.

        In a tool it becomes an `output` frame and is no part of the tool's result. In a function that was called by
        itself it is the text of the answer, and of the result.

        Raises:
            TypeError: `text` is not a string.
            ValueError: a function has written more than 1 MiB.
        """
        if not isinstance(text, str):
            raise TypeError(f"stream.write takes a string, not {type(text).__name__}")
        if text:
            self._sink.output(clean_text(text))
        return DONE

    def event(self, name: str, data: Any = None) -> Done:
        """Send a typed frame; `data` becomes JSON as a tool's return value does.

        Raises:
            ValueError: the name is reserved, or no token of 1 to 64 printable ASCII characters without space and colon.
            Unserializable: `data` has no JSON form.
        """
        check_event_name(name)
        self._sink.event(name, to_json(data))
        return DONE


def check_event_name(name: Any) -> None:
    """Raises `ValueError`."""
    if not isinstance(name, str) or _EVENT_NAME.fullmatch(name) is None:
        raise ValueError(
            f"event name {name!r:.80} must be 1 to 64 printable ASCII characters without spaces and colons"
        )
    if name in RESERVED_EVENTS:
        raise ValueError(f"event name {name!r} is reserved: the system writes such frames itself")
