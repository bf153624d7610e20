"""`Client`: a gateway's API as methods."""

import asyncio
import math
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from types import TracebackType
from typing import Any, Literal, Self, TypeVar, Unpack
from weakref import WeakSet

import httpx2
import orjson
from pydantic import ValidationError

from runyard.client.answers import Accepted, Agent, Answer, Cancellation, Invocation, Message, Result, Run
from runyard.client.failures import StillRunning, UnexpectedAnswer
from runyard.client.options import (
    ActAs,
    Blocks,
    CallOptions,
    SharedOptions,
    agent_call,
    function_call,
    input_call,
    place,
)
from runyard.client.streams import ACCEPT_STREAM, Stream, stream_call
from runyard.client.transport import Call, Token, Transport, checked_url

DEFAULT_URL = "http://127.0.0.1:8000"
WAIT_S = 45
"""How long one request waits for a result: gateways hold an answer for 60 s at most, and proxies cut connections that
are silent for as long."""

ASK_AGAIN_S = 1.0
"""A gateway that is leaving answers at once instead of waiting; without this the client would ask it in a tight loop.
"""

RUNS_PAGE = 100
MESSAGES_PAGE = 500
"""The largest page that a gateway gives."""

A = TypeVar("A", bound=Answer)


class Client:
    """A gateway's API. Make one for the life of a program; any number of tasks on one event loop may share it.

    Failures that may pass are retried: a gateway that cannot be reached or is leaving, 429 and 503. The wait is what
    `Retry-After` asks for, else one that grows, until nothing has got through for `patience_s`. Every call that starts
    or steers a run carries an `Idempotency-Key`, so one whose answer was lost is sent again and accepted once.

    All methods raise subclasses of `runyard.errors.RunyardError`, with `code`, `status`, `retryable`, `request_id` and
    `fields`. See docs/client.md. `SyncClient` is the same for code without an event loop.
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
        """Make a client; nothing connects before the first call.

        Args:
            url: Where the gateway is.
            token: A user's token or a service key, or a function (sync or async) that returns one. It is called before
                each request, so an expiring token can be renewed in the middle of a stream. None: for a gateway that
                trusts its machine.
            timeout_s: How long to wait for an answer that the gateway does not hold back on purpose.
            silence_s: A stream without a byte for this long is taken for dead; heartbeats come every 15 s.
            patience_s: How long to go on retrying while nothing gets through; 0: no retries.
            http: An HTTP client of your own, for proxies or certificates; you close it.

        Raises:
            ValueError: the URL is not an HTTP URL.
        """
        self._streams: WeakSet[Stream] = WeakSet()
        self._owns_http = http is None
        self._transport = Transport(
            url=checked_url(url),
            token=token,
            http=_http_client() if http is None else http,
            timeout_s=timeout_s,
            silence_s=silence_s,
            patience_s=patience_s,
        )

    async def aclose(self) -> None:
        """Close every connection. Runs go on."""
        for stream in list(self._streams):
            await stream.aclose()
        if self._owns_http:
            await self._transport.http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def __repr__(self) -> str:
        return f"Client({self._transport.place!r})"

    # Agents --------------------------------------------------------------------------------------------------------

    def stream(
        self,
        agent: str,
        input: str | Blocks | None = None,  # noqa: A002 - the word of the API
        *,
        resume: bool = True,
        **options: Unpack[CallOptions],
    ) -> Stream:
        """Start or continue a run and read its stream: `async with client.stream("researcher", input="...") as stream`.

        With `resume=False` a connection that breaks raises `StreamCut`. `CallOptions` has the other options.
        """
        return self._new_stream(agent_call(agent, input, **options).with_headers(ACCEPT_STREAM), resume=resume)

    def resume_stream(self, stream_id: str, *, since: int | None = None, resume: bool = True) -> Stream:
        """Read an existing stream, from its beginning or after frame `since`, even if it ended long ago.

        With `since`, `text` holds what comes after that frame. If those frames are no longer kept, the stream begins
        anew, with a `Rewind` to frame 0 and the committed text; with `resume=False` that raises
        `runyard.errors.StreamGone` instead.
        """
        return self._new_stream(stream_call(stream_id), stream_id=stream_id, since=since, resume=resume)

    async def run(
        self,
        agent: str,
        input: str | Blocks | None = None,  # noqa: A002
        *,
        timeout_s: float | None = None,
        **options: Unpack[CallOptions],
    ) -> Result:
        """Start or continue a run and wait for its result, for as long as it takes or for `timeout_s`.

        A run that failed is a result too: look at `result.status`, or call `result.raise_for_failure()`.

        Raises:
            StillRunning: `timeout_s` have passed; the run goes on.
        """
        return await self._awaited(agent_call(agent, input, **options), timeout_s)

    async def start(
        self,
        agent: str,
        input: str | Blocks | None = None,  # noqa: A002
        **options: Unpack[CallOptions],
    ) -> Accepted:
        """Start or continue a run without waiting for it; returns its ids."""
        return await self._fetch(agent_call(agent, input, **options), Accepted)

    async def agents(self) -> list[Agent]:
        """The agents that the caller may call, by name."""
        return [agent async for agent in self._pages(place("agents"), {}, Agent)]

    # Runs ----------------------------------------------------------------------------------------------------------

    async def steer(
        self,
        run_id: str,
        input: str | Blocks,  # noqa: A002
        *,
        act_as: ActAs | None = None,
        idempotency_key: str | None = None,
    ) -> Accepted:
        """Send input to a run. A run that is working reads it at its next step (then `queued` is set); any other begins
        a turn.

        Raises:
            InputQueueFull: too much input is waiting already.
        """
        call = input_call(run_id, input, act_as=act_as, idempotency_key=idempotency_key)
        return await self._fetch(call, Accepted)

    async def cancel(self, run_id: str, *, invocation_id: str | None = None, wait_s: float = 0.0) -> Cancellation:
        """Stop the invocation in progress and drop the input that waits behind it. A run that has ended keeps its
        status.

        Args:
            invocation_id: Stop only this invocation; a later one goes on. None: whichever is in progress. The client
                looks it up first, so that the cancel can be repeated safely.
            wait_s: How long to wait for it to stop; if it has not, `cancel_requested` is true in what is returned.
        """
        deadline_s = time.monotonic() + wait_s
        named = invocation_id or (await self.get_run(run_id)).invocation_id
        body = {} if named is None else {"invocationId": named}
        done = await self._fetch(Call(method="POST", path=place("runs", run_id, "cancel"), body=body), Cancellation)
        while done.cancel_requested and done.invocation_id and (left_s := deadline_s - time.monotonic()) > 0:
            ended = await self.invocation(done.invocation_id, wait_s=left_s)
            if not ended.is_busy:
                outcome = ended.to_json() | {"cancelled": ended.status == "cancelled", "cancelRequested": False}
                done = _read(outcome | {"dropped": [item.to_json() for item in done.dropped]}, Cancellation)
        return done

    def runs(
        self,
        *,
        agent: str | None = None,
        status: str | None = None,
        session_id: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        tenant_id: str | None = None,
        user_id: str | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[Run]:
        """Runs that match every filter, newest activity first, fetched page by page as they are read: `limit` of them,
        or all.

        `metadata` filters by top-level values of a run's metadata (strings, numbers, booleans, None).
        """
        query = {"agent": agent, "status": status, "sessionId": session_id, "tenantId": tenant_id, "userId": user_id}
        query |= {f"metadata.{name}": _written(value) for name, value in (metadata or {}).items()}
        return self._pages(place("runs"), query, Run, limit=limit, page=RUNS_PAGE)

    async def get_run(self, run_id: str) -> Run:
        """A run as it is now, with the input that waits to be read."""
        return await self._fetch(Call(method="GET", path=place("runs", run_id)), Run)

    def messages(
        self, run_id: str, *, order: Literal["asc", "desc"] = "asc", limit: int | None = None
    ) -> AsyncIterator[Message]:
        """The transcript, fetched page by page as it is read: `limit` rows, or all."""
        path = place("runs", run_id, "messages")
        return self._pages(path, {"order": order}, Message, limit=limit, page=MESSAGES_PAGE)

    async def invocation(self, invocation_id: str, *, wait_s: float = 0.0) -> Invocation:
        """What became of an invocation, step by step. With `wait_s`, wait that long for it to end."""
        deadline_s = time.monotonic() + wait_s
        call = Call(method="GET", path=place("invocations", invocation_id))
        while True:
            asked_s = time.monotonic()
            found = await self._fetch(_waiting(call, deadline_s - asked_s), Invocation)
            answered_s = time.monotonic()
            if not found.is_busy or answered_s >= deadline_s:
                return found
            await asyncio.sleep(asked_s + ASK_AGAIN_S - answered_s)

    # Functions -----------------------------------------------------------------------------------------------------

    async def function(
        self,
        name: str,
        input: Mapping[str, Any] | None = None,  # noqa: A002
        *,
        timeout_s: float | None = None,
        **options: Unpack[SharedOptions],
    ) -> Result:
        """Call a function with its arguments and wait for `result.output`, its value, and `result.text`, what it wrote.

        Raises:
            RunyardError: the function refused (its author chose `code`, `status` and `fields`) or failed.
            StillRunning: `timeout_s` have passed; the function goes on.
        """
        result = await self._awaited(function_call(name, input, **options), timeout_s)
        result.raise_for_failure()
        return result

    def stream_function(
        self,
        name: str,
        input: Mapping[str, Any] | None = None,  # noqa: A002
        *,
        resume: bool = True,
        **options: Unpack[SharedOptions],
    ) -> Stream:
        """Call a function and read its stream. A function that streams nothing has a single frame, its end.

        If the function refuses before it has streamed anything, opening the stream raises that.
        """
        return self._new_stream(function_call(name, input, **options).with_headers(ACCEPT_STREAM), resume=resume)

    # ---------------------------------------------------------------------------------------------------------------

    def _new_stream(
        self, opening: Call, *, resume: bool, stream_id: str | None = None, since: int | None = None
    ) -> Stream:
        stream = Stream(self._transport, opening, stream_id=stream_id, since=since, resume=resume)
        self._streams.add(stream)
        return stream

    async def _awaited(self, call: Call, timeout_s: float | None) -> Result:
        deadline_s = math.inf if timeout_s is None else time.monotonic() + timeout_s
        response = await self._transport.call(_waiting(call, deadline_s - time.monotonic()))
        result = _read(response.content, Invocation)
        if result.is_busy and response.headers.get("location", "").startswith("/v1/streams/"):
            return await self._end_of(result, deadline_s)  # of a public function, whose caller may read nothing else
        if result.is_busy and (left_s := deadline_s - time.monotonic()) > 0:
            result = await self.invocation(result.invocation_id, wait_s=left_s)
        if result.is_busy:
            raise _still_running(result)
        return result

    async def _end_of(self, accepted: Accepted, deadline_s: float) -> Result:
        left_s = None if math.isinf(deadline_s) else deadline_s - time.monotonic()
        try:
            async with asyncio.timeout(left_s), self.resume_stream(accepted.stream_id) as stream:
                return await stream.read()
        except TimeoutError:
            raise _still_running(accepted) from None

    async def _fetch(self, call: Call, kind: type[A]) -> A:
        return _read((await self._transport.call(call)).content, kind)

    async def _pages(
        self, path: str, query: Mapping[str, Any], kind: type[A], *, limit: int | None = None, page: int | None = None
    ) -> AsyncIterator[A]:
        """Each item of each page; the next page is asked for when it is needed. `page` None: there is one alone."""
        given = {name: value for name, value in query.items() if value is not None}
        left = math.inf if limit is None else limit
        cursor: str | None = None
        while left > 0:
            size = {} if page is None else {"limit": min(left, page)}
            at = {} if cursor is None else {"cursor": cursor}
            response = await self._transport.call(Call(method="GET", path=path, query=given | size | at))
            body = _object(response.content)
            for item in body["items"]:
                if left <= 0:
                    return
                left -= 1
                yield _read(item, kind)
            cursor = body.get("nextCursor")
            if cursor is None:
                return


def _http_client() -> httpx2.AsyncClient:
    # A stream is a connection: their number is no limit of ours.
    return httpx2.AsyncClient(limits=httpx2.Limits(max_connections=None, max_keepalive_connections=20))


def _waiting(call: Call, wait_s: float) -> Call:
    """The call, answered when there is a result, or after so long, or `WAIT_S`."""
    seconds = math.ceil(min(wait_s, WAIT_S))
    if seconds <= 0:
        return call
    return replace(call.with_headers({"Prefer": f"wait={seconds}"}), waits_s=seconds)


def _object(content: bytes) -> dict[str, Any]:
    try:
        body = orjson.loads(content)
    except ValueError:
        body = None
    if not isinstance(body, dict):
        raise UnexpectedAnswer("the answer is not a JSON object")
    return body


def _read(body: bytes | dict[str, Any], kind: type[A]) -> A:
    try:
        return kind.model_validate(_object(body) if isinstance(body, bytes) else body)
    except ValidationError as error:
        raise UnexpectedAnswer(f"the answer is no {kind.__name__}: {error.errors()[0]['msg']}") from None


def _written(value: Any) -> str:
    """As the query has values of metadata: `true`, `null`, `3`, a text as it is."""
    return value if isinstance(value, str) else orjson.dumps(value).decode()


def _still_running(accepted: Accepted) -> StillRunning:
    return StillRunning(
        "the invocation has not ended in time",
        runId=accepted.run_id,
        invocationId=accepted.invocation_id,
        streamId=accepted.stream_id,
    )
