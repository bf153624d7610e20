"""`SyncClient`: `Client` for code without an event loop. Each method runs the async one on a loop in a thread, so both
have one source.
"""

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from functools import wraps
from types import TracebackType
from typing import Concatenate, ParamSpec, Self, TypeVar

from runyard.client.answers import Result
from runyard.client.client import Client
from runyard.client.frames import Frame
from runyard.client.portal import Portal
from runyard.client.progress import InHand
from runyard.client.streams import Stream

P = ParamSpec("P")
T = TypeVar("T")


class _Closed(ABC):
    """By `with`."""

    @abstractmethod
    def close(self) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class SyncStream(_Closed, InHand):
    """A `Stream` as an iterator: `for frame in stream`. It is open from the start, and `with` closes it."""

    def __init__(self, stream: Stream, portal: Portal) -> None:
        self._progress = stream._progress  # noqa: SLF001 - the two are one stream
        self._stream = stream
        self._portal = portal

    def read(self) -> Result:
        """Read to the end, and return how the invocation ended."""
        return self._portal.call(self._stream.read)

    def close(self) -> None:
        """Leave the stream. The run goes on."""
        self._portal.call(self._stream.aclose)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Frame:
        frame = self._portal.call(lambda: anext(self._stream, None))
        if frame is None:
            raise StopIteration
        return frame

    def __repr__(self) -> str:
        return f"Sync{self._stream!r}"


def _waits(method: Callable[Concatenate[Client, P], Awaitable[T]]) -> Callable[Concatenate["SyncClient", P], T]:
    @wraps(method)
    def blocking(self: "SyncClient", /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self.portal.call(lambda: method(self.client, *args, **kwargs))

    return blocking


def _iterates(
    method: Callable[Concatenate[Client, P], AsyncIterator[T]],
) -> Callable[Concatenate["SyncClient", P], Iterator[T]]:
    @wraps(method)
    def iterating(self: "SyncClient", /, *args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        items = method(self.client, *args, **kwargs)
        while (item := self.portal.call(lambda: anext(items, None))) is not None:
            yield item

    return iterating


def _streams(
    method: Callable[Concatenate[Client, P], Stream],
) -> Callable[Concatenate["SyncClient", P], SyncStream]:
    @wraps(method)
    def opening(self: "SyncClient", /, *args: P.args, **kwargs: P.kwargs) -> SyncStream:
        return SyncStream(self.portal.call(method(self.client, *args, **kwargs).open), self.portal)

    return opening


def _made_as(make: Callable[P, Client]) -> Callable[Concatenate["SyncClient", P], None]:
    """See `Client`. It has a thread from its first call until it is closed."""

    def made(self: "SyncClient", /, *args: P.args, **kwargs: P.kwargs) -> None:
        self.client, self.portal = make(*args, **kwargs), Portal()

    return wraps(Client.__init__)(made)


class SyncClient(_Closed):
    """A `Client` whose methods block, and whose streams and lists are plain iterators. Threads may share it.

    Do not use it in code that runs on an event loop: it would block the loop.
    """

    client: Client
    portal: Portal

    __init__ = _made_as(Client)

    stream = _streams(Client.stream)
    resume_stream = _streams(Client.resume_stream)
    run = _waits(Client.run)
    start = _waits(Client.start)
    agents = _waits(Client.agents)
    steer = _waits(Client.steer)
    cancel = _waits(Client.cancel)
    runs = _iterates(Client.runs)
    get_run = _waits(Client.get_run)
    messages = _iterates(Client.messages)
    invocation = _waits(Client.invocation)
    function = _waits(Client.function)
    stream_function = _streams(Client.stream_function)

    def close(self) -> None:
        """Close every connection and end the thread. Runs go on."""
        self.portal.close(self.client.aclose)

    def __repr__(self) -> str:
        return f"Sync{self.client!r}"
