"""`SyncClient`: `Client` for code without an event loop. Each method is the async one, run on a loop in a thread: there
is one source for both.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from functools import wraps
from types import TracebackType
from typing import Concatenate, ParamSpec, Self, TypeVar

import httpx2

from runyard.client.answers import Result
from runyard.client.client import DEFAULT_URL, Client
from runyard.client.frames import Frame
from runyard.client.portal import Portal
from runyard.client.progress import InHand
from runyard.client.streams import Stream
from runyard.client.transport import Token

P = ParamSpec("P")
T = TypeVar("T")


class SyncStream(InHand):
    """`Stream` as an iterator: `for frame in stream`. It is open from the first moment, and closed by `with`."""

    def __init__(self, stream: Stream, portal: Portal) -> None:
        self._progress = stream._progress  # noqa: SLF001 - the two are one stream
        self._stream = stream
        self._portal = portal

    def read(self) -> Result:
        """Read on to the end; how the invocation ended."""
        return self._portal.call(self._stream.read())

    def close(self) -> None:
        """Leave the stream. The run goes on."""
        self._portal.call(self._stream.aclose())

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Frame:
        frame = self._portal.call(anext(self._stream, None))
        if frame is None:
            raise StopIteration
        return frame

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Sync{self._stream!r}"


def _waits(method: Callable[Concatenate[Client, P], Awaitable[T]]) -> Callable[Concatenate["SyncClient", P], T]:
    @wraps(method)
    def blocking(self: "SyncClient", /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self.portal.call(method(self.client, *args, **kwargs))

    return blocking


def _iterates(
    method: Callable[Concatenate[Client, P], AsyncIterator[T]],
) -> Callable[Concatenate["SyncClient", P], Iterator[T]]:
    @wraps(method)
    def iterating(self: "SyncClient", /, *args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        items = method(self.client, *args, **kwargs)
        while (item := self.portal.call(anext(items, None))) is not None:
            yield item

    return iterating


def _streams(
    method: Callable[Concatenate[Client, P], Stream],
) -> Callable[Concatenate["SyncClient", P], SyncStream]:
    @wraps(method)
    def opening(self: "SyncClient", /, *args: P.args, **kwargs: P.kwargs) -> SyncStream:
        return SyncStream(self.portal.call(method(self.client, *args, **kwargs).open()), self.portal)

    return opening


class SyncClient:
    """`Client` whose methods wait, whose streams and lists are plain iterators. Threads may share it.

    Not for code that runs on an event loop: it would stand still.
    """

    def __init__(
        self,
        url: str = DEFAULT_URL,
        *,
        token: Token | None = None,
        timeout_s: float = 30.0,
        silence_s: float = 45.0,
        patience_s: float = 120.0,
        http: httpx2.AsyncClient | None = None,
    ) -> None:
        """See `Client`. It has a thread until it is closed."""
        self.client = Client(
            url, token=token, timeout_s=timeout_s, silence_s=silence_s, patience_s=patience_s, http=http
        )
        self.portal = Portal()

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
        self.portal.call(self.client.aclose())
        self.portal.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Sync{self.client!r}"
