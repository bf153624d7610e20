"""Calls of the gateway as one user makes them, over httpx2."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx2
from tests.clients.answer import AnswerText, is_terminal
from tests.clients.specification import check_terminal, is_described
from tests.clients.sse import Event, EventStreamParser

GUARD_S = 30.0
"""Far beyond anything that happens on a loaded machine: only a fault reaches it."""

STREAM = {"Accept": "text/event-stream"}


class StreamEnded(AssertionError):
    """The answer ended before what the test waits for came."""


@dataclass(kw_only=True)
class Reading:
    """A streamed answer, read event by event. `events` is all that was read so far, but for `notices`: what a gateway
    says beside the stream to those who wait, at any moment.
    """

    response: httpx2.Response
    events: list[Event] = field(default_factory=list)
    notices: list[Event] = field(default_factory=list)
    answer: AnswerText = field(default_factory=AnswerText)
    parser: EventStreamParser = field(default_factory=EventStreamParser)
    _ready: list[Event] = field(default_factory=list)
    _bytes: AsyncIterator[bytes] | None = None

    @property
    def text(self) -> str:
        return self.answer.text

    @property
    def stream_id(self) -> str:
        return self.response.headers["x-stream-id"]

    @property
    def last_event_id(self) -> str:
        """What a browser would send as `Last-Event-ID`: of the events read, not of those received."""
        return self.events[-1].last_event_id if self.events else ""

    async def next(self, *, guard_s: float = GUARD_S) -> Event | None:
        """The next event; None: the answer has ended."""
        async with asyncio.timeout(guard_s):  # heartbeats in between do not begin it anew
            while not self._ready:
                if not await self._receive():
                    assert self.parser.at_rest, "the answer ended in the middle of an event"
                    return None
        event = self._ready.pop(0)
        self.events.append(event)
        self.answer.feed(event)
        return event

    async def until(self, holds: Callable[[Event], bool], *, guard_s: float = GUARD_S) -> Event:
        """Read on to the first event of which it holds."""
        while (event := await self.next(guard_s=guard_s)) is not None:
            if holds(event):
                return event
        raise StreamEnded(f"after {[(event.id, event.type) for event in self.events]}")

    async def until_text(self, text: str) -> None:
        """Read on until the answer's text is this. One that can no longer become it is not waited for."""
        while self.text != text:
            assert text.startswith(self.text), f"the text became {self.text!r}"
            if await self.next() is None:
                raise StreamEnded(f"with the text {self.text!r}")

    async def opened(self, *, guard_s: float = GUARD_S) -> None:
        """The first bytes are there: before any event, the first heartbeat."""
        async with asyncio.timeout(guard_s):
            while not self.parser.comments:
                assert await self._receive(), "the answer ended without a heartbeat"

    async def rest(self, *, guard_s: float = GUARD_S) -> list[Event]:
        """Read to the end of the answer; all events of it, those before included."""
        while await self.next(guard_s=guard_s) is not None:
            pass
        return self.events

    async def _receive(self) -> bool:
        if self._bytes is None:
            self._bytes = self.response.aiter_raw()
        received = await anext(self._bytes, None)
        if received is None:
            return False
        for event in self.parser.feed(received):
            if is_terminal(event) and is_described(self.response):
                check_terminal(event)
            (self.notices if event.type == "status" and event.id is None else self._ready).append(event)
        return True


class Api:
    """`headers` go with every call of it."""

    def __init__(self, http: httpx2.AsyncClient, headers: Mapping[str, str]) -> None:
        self._http = http
        self.headers = dict(headers)

    async def get(self, path: str, *, headers: Mapping[str, str] | None = None, **query: Any) -> httpx2.Response:
        return await self.call("GET", path, headers=headers, params=query)

    async def post(self, path: str, body: Any = None, *, headers: Mapping[str, str] | None = None) -> httpx2.Response:
        return await self.call("POST", path, headers=headers, json=body)

    async def call(
        self, method: str, path: str, *, headers: Mapping[str, str] | None = None, **more: Any
    ) -> httpx2.Response:
        async with asyncio.timeout(GUARD_S):
            return await self._http.request(method, path, headers=self.headers | dict(headers or {}), **more)

    async def start(self, agent: str, text: Any = "go", **body: Any) -> dict[str, Any]:
        """Start or continue a run without waiting for it: the answer's body."""
        response = await self.post(f"/v1/agents/{agent}/runs", {"input": text, **body})
        assert response.status_code == 202, response.text
        started: dict[str, Any] = response.json()
        return started

    async def run(self, agent: str, text: Any = "go", **body: Any) -> dict[str, Any]:
        """Start or continue a run and wait for its result."""
        headers = {"Prefer": "wait=30"}
        response = await self.post(f"/v1/agents/{agent}/runs", {"input": text, **body}, headers=headers)
        assert response.status_code == 200, response.text
        result: dict[str, Any] = response.json()
        return result

    async def settled(self, invocation_id: str) -> dict[str, Any]:
        """The result of an invocation, once it has one."""
        response = await self.get(f"/v1/invocations/{invocation_id}", headers={"Prefer": "wait=30"})
        assert response.status_code == 200, response.text
        result: dict[str, Any] = response.json()
        return result

    async def messages(self, run_id: str) -> list[dict[str, Any]]:
        """The whole transcript."""
        response = await self.get(f"/v1/runs/{run_id}/messages", limit=500)
        assert response.status_code == 200, response.text
        items: list[dict[str, Any]] = response.json()["items"]
        return items

    @asynccontextmanager
    async def streaming(
        self, agent: str, text: Any = "go", *, headers: Mapping[str, str] | None = None, **body: Any
    ) -> AsyncIterator[Reading]:
        """Start or continue a run and read its stream."""
        opening = self.reading(
            "POST", f"/v1/agents/{agent}/runs", headers=STREAM | dict(headers or {}), json={"input": text, **body}
        )
        async with opening as reading:
            assert reading.response.status_code == 200, await reading.response.aread()
            yield reading

    @asynccontextmanager
    async def resuming(
        self, stream_id: str, last_event_id: str | None = None, *, since: str | None = None
    ) -> AsyncIterator[Reading]:
        headers = {} if last_event_id is None else {"Last-Event-ID": last_event_id}
        query = {} if since is None else {"since": since}
        async with self.reading("GET", f"/v1/streams/{stream_id}", headers=headers, params=query) as reading:
            yield reading

    @asynccontextmanager
    async def reading(
        self, method: str, path: str, *, headers: Mapping[str, str] | None = None, **more: Any
    ) -> AsyncIterator[Reading]:
        """An answer that is read as it comes, whatever its status."""
        sending = self._http.stream(method, path, headers=self.headers | dict(headers or {}), **more)
        async with sending as response:
            yield Reading(response=response)


async def replay(api: Api, stream_id: str, last_event_id: str | None = None) -> list[Event]:
    """All that a stream has after a cursor, read to its end."""
    async with api.resuming(stream_id, last_event_id) as reading:
        assert reading.response.status_code == 200, await reading.response.aread()
        events = await reading.rest()
        assert is_terminal(events[-1]), "the stream ended without a terminal frame"
        return events
