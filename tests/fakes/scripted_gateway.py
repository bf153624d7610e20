"""A gateway for tests of the client. It gives scripted answers in order (whole, cut or never) and records requests."""

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx2
import orjson

from runyard.client import Client
from runyard.client.patience import Patience
from runyard.client.transport import Transport

STREAM = "st_1"
HEAD = {"X-Stream-Id": STREAM, "X-Run-Id": "run_1", "Location": "/v1/invocations/inv_1"}
"""Of the answer to a call."""


@dataclass(frozen=True, kw_only=True)
class Scripted:
    """`cut`: raised behind the body, or in place of an answer where there is no status."""

    status: int | None = 200
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    cut: Exception | None = None

    def response(self) -> httpx2.Response:
        if self.status is None:
            assert self.cut is not None
            raise self.cut
        return httpx2.Response(self.status, headers=self.headers, stream=_Body(self.body, self.cut))


class _Body(httpx2.AsyncByteStream):
    def __init__(self, body: bytes, cut: Exception | None) -> None:
        self._body, self._cut = body, cut

    async def __aiter__(self) -> AsyncIterator[bytes]:
        if self._body:
            yield self._body
        if self._cut is not None:
            raise self._cut


@dataclass(kw_only=True)
class ScriptedGateway:
    answers: list[Scripted] = field(default_factory=list)
    requests: list[httpx2.Request] = field(default_factory=list)

    def handle(self, request: httpx2.Request) -> httpx2.Response:
        self.requests.append(request)
        return self.answers.pop(0).response()

    def client(self, **options: Any) -> Client:
        return Client("http://gateway", http=httpx2.AsyncClient(transport=httpx2.MockTransport(self.handle)), **options)

    def asked(self) -> list[str]:
        return [f"{request.method} {request.url.raw_path.decode()}" for request in self.requests]

    def bodies(self) -> list[Any]:
        """What each request said in JSON; None: nothing."""
        return [orjson.loads(request.content) if request.content else None for request in self.requests]

    def header(self, name: str) -> list[str | None]:
        return [request.headers.get(name) for request in self.requests]


@dataclass
class PatientClock:
    """Sleeps at once, and remembers for how long."""

    at_s: float = 0.0
    slept_s: list[float] = field(default_factory=list)

    def now(self) -> float:
        return self.at_s

    async def sleep(self, delay_s: float) -> None:
        self.slept_s.append(delay_s)
        self.at_s += delay_s

    def method(self) -> Callable[[Transport], Patience]:
        """In place of `Transport.patience`."""
        return lambda transport: Patience(transport.patience_s, now=self.now, sleep=self.sleep)


def sse(*frames: tuple[int | None, str | None, Any], retry_ms: int | None = None) -> bytes:
    """`(number, event, data)`; data that is no text is JSON."""
    parts = [] if retry_ms is None else [f"retry: {retry_ms}\n\n"]
    for number, event, data in frames:
        lines = [] if number is None else [f"id: {number}"]
        lines += [] if event is None else [f"event: {event}"]
        text = data if isinstance(data, str) else orjson.dumps(data).decode()
        lines += [f"data: {line}" for line in text.split("\n")]
        parts.append("\n".join(lines) + "\n\n")
    return "".join(parts).encode()


def streamed(
    *frames: tuple[int | None, str | None, Any],
    cut: Exception | None = None,
    headers: dict[str, str] | None = None,
    retry_ms: int | None = None,
    rest: bytes = b"",
) -> Scripted:
    """`rest`: half an event behind the last frame."""
    head = {"Content-Type": "text/event-stream", **(HEAD if headers is None else headers)}
    return Scripted(headers=head, body=b": hb\n\n" + sse(*frames, retry_ms=retry_ms) + rest, cut=cut)


def resumed(*frames: tuple[int | None, str | None, Any], cut: Exception | None = None, **more: Any) -> Scripted:
    return streamed(*frames, cut=cut, headers={"X-Stream-Id": STREAM}, **more)


def told(status: int, body: Any, **headers: str) -> Scripted:
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    return Scripted(status=status, headers={"Content-Type": "application/json", **given}, body=orjson.dumps(body))


def refused(
    status: int, code: str, *, retryable: bool = False, headers: dict[str, str] | None = None, **fields: Any
) -> Scripted:
    error = {"code": code, "message": f"{code} it is", "requestId": "req_1", "retryable": retryable, **fields}
    return told(status, {"error": error}, **(headers or {}))


def lost() -> Scripted:
    """The call went out, and no answer came."""
    return Scripted(status=None, cut=httpx2.RemoteProtocolError("the server left"))


def result(text: str = "hello", *, status: str = "completed", **fields: Any) -> dict[str, Any]:
    ids = {"runId": "run_1", "sessionId": None, "invocationId": "inv_1", "streamId": STREAM}
    return {**ids, "status": status, "text": text, **fields}


def numbers(frames: Sequence[Any]) -> list[int | None]:
    return [frame.seq for frame in frames]
