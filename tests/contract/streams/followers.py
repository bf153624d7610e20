"""Readers of a stream that behave as clients do: they lose connections, resume by cursor, and start over on a 410."""

import asyncio
import contextlib
import copy
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from redis.asyncio import Redis
from tests.clients.answer import AnswerText, is_terminal
from tests.clients.sse import Event, EventStreamParser
from tests.contract.execution.worker import GUARD_S, FakeFrameServer, SwitchableStore

from runyard.db.engine import Database
from runyard.errors import StreamGone
from runyard.ids import StreamId
from runyard_gateway.auth.credentials import Lasting
from runyard_gateway.directory import AgentDirectory
from runyard_gateway.fleet import Fleet
from runyard_gateway.hub import Hub
from runyard_gateway.standings import Standings
from runyard_gateway.streaming import ResumedStream
from runyard_gateway.watcher import Watcher

NOTHING = {"toSeq": 0, "length": 0}


class LossyHub(Hub):
    """`losing`: so many of the next messages that are published do not arrive."""

    losing = 0

    def _on_message(self, channel: bytes, message: bytes) -> None:
        if self.losing:
            self.losing -= 1
        else:
            super()._on_message(channel, message)


@dataclass(kw_only=True)
class Post:
    """A gateway as far as its streams need it; its connections to Redis have its name."""

    name: str
    hub: LossyHub
    parts: Any
    redis: Redis

    async def answer(self, stream_id: str, cursor: int | None, send: Any, receive: Any) -> None:
        """As `GET /v1/streams/{id}` does, once it has decided that this caller may read.

        Raises:
            StreamGone: 410.
        """
        resumed = ResumedStream(
            gateway=self.parts,
            stream_id=StreamId(stream_id),
            credential=Lasting(),
            cursor=cursor,
            request_id="req_1",
        )
        await resumed({"type": "http", "method": "GET"}, receive, send)

    async def cut_subscription(self, admin: Redis) -> None:
        for one in await admin.client_list():
            if one["name"] == self.name and int(one["sub"]):
                await admin.client_kill_filter(_id=one["id"])


@contextlib.asynccontextmanager
async def posted(
    name: str, client: Redis, server: FakeFrameServer, prefix: str, database: Database
) -> AsyncIterator[Post]:
    store = SwitchableStore(client, server, prefix=prefix, retain_s=60, max_bytes=4_194_304, max_streams=1000)
    client.connection_pool.connection_kwargs["client_name"] = name
    hub = LossyHub(store, client)
    parts = SimpleNamespace(hub=hub, store=store, database=database)
    fleet = Fleet(database)
    directory = AgentDirectory(database, lives=fleet.lives)
    standings = Standings(database, directory, fleet)
    running = [asyncio.create_task(hub.run()), asyncio.create_task(Watcher(database, store, hub, standings).run())]
    try:
        yield Post(name=name, hub=hub, parts=parts, redis=client)
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


@dataclass(frozen=True, kw_only=True)
class Place:
    """What a client has at one moment. `last` None: nothing yet; `was_told`: that it misses some of an answer."""

    last: int | None = None
    was_told: bool = False
    answer: AnswerText = field(default_factory=AnswerText)
    is_at_the_end: bool = False


class Follower:
    """One client. `complaints`: what no client may meet: a hole, a frame twice, an end without a terminal frame."""

    def __init__(self, stream_id: str) -> None:
        self.complaints: list[str] = []
        self.places = [Place()]
        """Behind each numbered frame since it began; it may come back from any of them."""

        self.told: list[tuple[str | None, str]] = []
        self._stream_id = stream_id
        self._reading: asyncio.Task[None] | None = None
        self._gone = asyncio.Event()
        self._answer = AnswerText()
        self._may_jump = self._is_whole = False

    @property
    def place(self) -> Place:
        return self.places[-1]

    @property
    def is_reading(self) -> bool:
        return self._reading is not None and not self._reading.done()

    async def leave(self) -> None:
        """Its connection is lost."""
        self._gone.set()
        if self._reading is not None:
            await asyncio.wait([self._reading])
            self._reading.result()

    async def come(self, post: Post, *, forgetting: int = 0) -> None:
        """Connect, with the cursor of a place so many frames back: from then on it is there."""
        await self.leave()
        del self.places[max(1, len(self.places) - forgetting) :]
        self._gone = asyncio.Event()
        self._reading = asyncio.create_task(self._read(post))

    async def has(self, words: str) -> None:
        """Until it has this answer."""
        async with asyncio.timeout(GUARD_S):
            while self.place.answer.text != words:  # noqa: ASYNC110 - its task sets no event of ours
                await asyncio.sleep(0.001)

    async def ended(self, guard_s: float) -> None:
        """Until the answer has ended by itself."""
        assert self._reading is not None
        async with asyncio.timeout(guard_s):
            await self._reading

    async def _read(self, post: Post) -> None:
        parser = EventStreamParser()
        self._may_jump = self._is_whole = False
        self._answer = copy.deepcopy(self.place.answer)
        self.told.append((post.name, f"from {self.place.last}"))

        async def send(message: Any) -> None:
            if message["type"] == "http.response.start":
                self.told.append((None, str(message["status"])))
                if message["status"] == 204 and not self.place.is_at_the_end:
                    self.complaints.append(f"nothing follows {self.place.last}, and there was no end")
            else:
                for event in parser.feed(message["body"]):
                    self._feed(event)

        async def receive() -> Any:
            await self._gone.wait()
            return {"type": "http.disconnect"}

        try:
            await post.answer(self._stream_id, self.place.last, send, receive)
        except StreamGone:
            self._begin_anew()

    def _begin_anew(self) -> None:
        self.told.append((None, "410"))
        self.places = [Place()]

    def _feed(self, event: Event) -> None:
        self.told.append((event.id, f"{event.type} {event.data}"[:60]))
        withdraws_all = event.type == "rewind" and json.loads(event.data) == NOTHING
        if event.type == "error" and event.id is None and json.loads(event.data)["error"]["code"] == StreamGone.code:
            self._begin_anew()
            return
        if self.place.is_at_the_end:
            self.complaints.append(f"frame {event.id} after the end")
        try:
            self._answer.feed(event)
        except AssertionError as complaint:
            self.complaints.append(str(complaint))
        if event.seq is None:
            if withdraws_all:  # what follows stands for all that was before: the text, perhaps the end right behind it
                self._may_jump = self._is_whole = True
            elif event.type != "status":
                self.complaints.append(f"an un-numbered {event.type}")
            return
        last = self.place.last or 0
        trimmed = json.loads(event.data).get("trimmed") if event.type == "status" else None
        first = event.seq if trimmed is None else trimmed["fromSeq"]
        may_jump = self._may_jump or withdraws_all or (self._is_whole and is_terminal(event))
        if first != last + 1 and not (may_jump and (first > last or self._may_jump)):
            self.complaints.append(f"frame {first} after {last}")
        self._is_whole, self._may_jump = self._may_jump, False
        self.places.append(
            Place(
                last=event.seq,
                was_told=trimmed is not None or (self.place.was_told and not withdraws_all),
                answer=copy.deepcopy(self._answer),
                is_at_the_end=is_terminal(event),
            )
        )
