"""The core of a worker on a real database and a real Redis, with a model that plays scripts."""

import asyncio
import contextlib
import json
import math
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from redis.asyncio import Redis
from sqlalchemy.ext.asyncio import AsyncConnection
from tests.contract.store import states
from tests.fakes.databases import FaultyDatabase
from tests.fakes.models import NO_WAITS
from tests.fakes.provider import FakeProviders, Script, ScriptedProvider
from tests.standin import validate_transcript

from runyard.authoring.agents import Agent, agent
from runyard.authoring.functions import Function
from runyard.blocks import call_ids, text_of
from runyard.db import turns
from runyard.db.claims import Claim
from runyard.db.engine import Database
from runyard.db.records import Call, Invocation, Message, Run
from runyard.db.tables import agent_calls, metadata
from runyard.errors import StoreUnavailable
from runyard.frames import Frame, FrameEvent, answer_text
from runyard.ids import RunId
from runyard.streams.ops import Answer, Op
from runyard.streams.store import FrameStore
from runyard.transcript import request_messages
from runyard_workers.catalog import Catalog, LoadedAgent, LoadedFunction
from runyard_workers.closer import Closer
from runyard_workers.execution import Execution
from runyard_workers.flusher import Flusher
from runyard_workers.liveness import Liveness
from runyard_workers.rooms import Broadcasts
from runyard_workers.services import Services
from runyard_workers.threads import ToolThreads

GUARD_S = 30.0
"""How long a test waits for what must come."""


class SwitchableStore(FrameStore):
    """The frame script, and a switch that takes Redis away. `applied`: a first call went through."""

    away = False

    def __init__(self, client: Redis, server: "FakeFrameServer", **limits: Any) -> None:
        super().__init__(client, **limits)
        self._server = server
        self.applied = asyncio.Event()

    async def server_run_id(self) -> str:
        if self._server.now is None:
            raise StoreUnavailable("Redis does not answer")
        return self._server.now

    async def apply(self, ops: Sequence[Op]) -> list[Answer]:
        if self.away:
            raise StoreUnavailable("Redis does not answer")
        answers = await super().apply(ops)
        self.applied.set()
        return answers


class FakeFrameServer:
    """As `runyard_workers.frame_server.FrameServer`. `now`: what it would answer; None: nothing."""

    def __init__(self) -> None:
        self.run_id = "redis-1"
        self.now: str | None = "redis-1"

    async def ask(self) -> str:
        if self.now is None:
            raise StoreUnavailable("Redis does not answer")
        self.run_id = self.now
        return self.run_id


@dataclass(kw_only=True)
class Worker:
    """One worker process's core. `provider`, `agent`, `functions` may be exchanged between runs."""

    database: FaultyDatabase
    store: SwitchableStore
    worker_id: Any
    server: FakeFrameServer
    flusher: Flusher
    closer: Closer
    threads: ToolThreads
    liveness: Liveness
    provider: ScriptedProvider
    agent: Agent
    functions: tuple[Function, ...] = ()

    def script(self, *scripts: Script, **options: Any) -> None:
        """What the model says, turn by turn, and what the agent is (`tools=`, `max_steps=`, ...)."""
        self.provider = ScriptedProvider(scripts=scripts)
        self.agent = agent(**options)

    @property
    def loaded(self) -> LoadedAgent:
        return LoadedAgent(name="researcher", agent=self.agent, version="v1", manifest={}, path=Path("researcher.py"))

    @property
    def catalog(self) -> Catalog:
        functions = [
            LoadedFunction(name=f"fn:{it.name}", function=it, version="v1", manifest={}, path=Path("functions.py"))
            for it in self.functions
        ]
        return Catalog(
            agents={"researcher": self.loaded},
            functions={function.name: function for function in functions},
            problems=(),
            lifespans=(),
        )

    @property
    def services(self) -> Services:
        return Services(
            database=self.database,
            retries=NO_WAITS,
            flusher=self.flusher,
            closer=self.closer,
            broadcasts=Broadcasts(self.store._client, prefix="test"),
            providers=FakeProviders(self.provider),
            threads=self.threads,
            liveness=self.liveness,
            catalog=self.catalog,
            resources={"library": "books"},
            default_model=None,
            frame_server=self.server,
        )

    async def claim(self, **turn: Any) -> Claim:
        """Accept a turn and claim its run."""
        await states.accepted(self.database, **turn)
        return await self.claim_queued()

    async def claim_queued(self) -> Claim:
        versions = {name: loaded.version for name, loaded in self.catalog.loaded.items()}
        found = await states.claimed(self.database, self.worker_id, agents=versions, redis_run_id=self.server.run_id)
        self.database.written.clear()
        return found

    def execution(self, claim: Claim) -> Execution:
        return Execution(self.services, claim, self.catalog.loaded[claim.run.agent])

    async def execute(self, claim: Claim) -> "Settled":
        """Execute a claimed run and wait until its stream is closed."""
        async with asyncio.timeout(GUARD_S):
            await self.execution(claim).run()
        return await self.settled(claim.run.id)

    async def run(self, **turn: Any) -> "Settled":
        return await self.execute(await self.claim(**turn))

    async def seen(self, claim: Claim) -> list[Frame]:
        """What a reader has by now, after all that was written has arrived."""
        for writer in list(self.flusher._writers):
            await writer.flush(GUARD_S)
        return await self.store.read(claim.invocation.stream_id, 0, 10_000)

    async def settled(self, run_id: RunId) -> "Settled":
        async with asyncio.timeout(GUARD_S):
            await self.closer.drained()
        return await look(self.database, self.store, run_id)


@contextlib.asynccontextmanager
async def opened(database_url: str, client: Redis, prefix: str) -> AsyncIterator[Worker]:
    database = FaultyDatabase(database_url, pool_size=4)
    server = FakeFrameServer()
    frames = SwitchableStore(client, server, prefix=prefix, retain_s=60, max_bytes=4_194_304, max_streams=1000)
    flusher, closer, liveness = Flusher(frames), Closer(database, frames), Liveness()
    liveness.seen(math.inf)  # however long a test takes on a busy machine
    worker = Worker(
        database=database,
        store=frames,
        worker_id=states.registered(database_url),
        server=server,
        flusher=flusher,
        closer=closer,
        threads=ToolThreads(4),
        liveness=liveness,
        provider=ScriptedProvider(scripts=[]),
        agent=agent(),
    )
    tasks = [asyncio.create_task(flusher.run()), asyncio.create_task(closer.run())]
    try:
        yield worker
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await database.write(empty)
        await database.close()


async def empty(connection: AsyncConnection) -> None:
    for table in reversed(metadata.sorted_tables):
        await connection.execute(sa.delete(table))


@dataclass(frozen=True, kw_only=True)
class Settled:
    """All that is left of a settled invocation."""

    run: Run
    invocation: Invocation
    rows: list[Message]
    calls: list[Call]
    frames: list[Frame]

    @property
    def result(self) -> dict[str, Any]:
        assert self.invocation.result is not None
        return self.invocation.result

    @property
    def contents(self) -> list[Any]:
        return [row.content for row in self.rows]

    @property
    def results(self) -> list[dict[str, Any]]:
        """Every tool_result of the transcript."""
        blocks = [
            block for row in self.rows if row.role == "user" and isinstance(row.content, list) for block in row.content
        ]
        return [block for block in blocks if block["type"] == "tool_result"]

    def events(self, *names: str) -> list[Any]:
        """The data of the frames with these events, in order."""
        return [json.loads(frame.data) for frame in self.frames if frame.event in names]

    @property
    def order(self) -> list[str]:
        """The events of all frames; "" is answer text."""
        return [frame.event or "" for frame in self.frames]

    def check(self, *, seen: Sequence[Frame] = ()) -> "Settled":
        """What holds of every settled invocation, for a reader who had `seen` these frames before.

        The text after all rewinds equals the rows' text, numbers have no holes but at a base, each row is told of once
        (where something is withdrawn, once at most), the terminal frame is there once and last, the transcript can be
        sent, every call has ended.
        """
        cursor = seen[-1].seq if seen else 0
        reader = Reader()
        for frame in [*seen, *(frame for frame in self.frames if frame.seq > cursor)]:
            reader.feed(frame)
        own = [row for row in self.rows if row.role == "assistant" and row.invocation_id == self.invocation.id]
        assert reader.text == "".join(text_of(row.content) for row in own)
        assert [frame.is_terminal for frame in self.frames].index(True) == len(self.frames) - 1
        told = [row["seq"] for row in self.events("message")]
        assert told == sorted(set(told))
        if FrameEvent.REWIND not in self.order:
            assert told == [row.seq for row in self.rows if row.invocation_id == self.invocation.id]
        assert self.invocation.stream_closed
        validate_transcript(request_messages(self.rows))
        assert [block["tool_use_id"] for block in self.results] == [
            call_id for row in self.rows if row.role == "assistant" for call_id in call_ids(row.content)
        ]
        assert [row.seq for row in self.rows] == list(range(1, len(self.rows) + 1))
        assert self.run.last_seq == self.invocation.last_seq == len(self.rows)
        return self


class Reader:
    """What a reader of a stream has in hand; each half of a `rewind` (the frame, the length) must tell the same."""

    def __init__(self) -> None:
        self.last = 0
        self._pieces: list[tuple[int, str]] = []

    @property
    def text(self) -> str:
        return "".join(piece for _, piece in self._pieces)

    def feed(self, frame: Frame) -> None:
        rewind = json.loads(frame.data) if frame.event == FrameEvent.REWIND else None
        assert frame.seq == self.last + 1 or (frame.seq > self.last and rewind == {"toSeq": 0, "length": 0})
        self.last = frame.seq
        if rewind:
            self._pieces = [piece for piece in self._pieces if piece[0] <= rewind["toSeq"]]
            assert len(self.text) == rewind["length"]
        elif (text := answer_text(frame.event, frame.data)) is not None:
            self._pieces.append((frame.seq, text))


async def look(database: Database, frames: FrameStore, run_id: RunId) -> Settled:
    run, invocation = await states.run_and_invocation(database, run_id)

    async def calls(connection: Any) -> list[Call]:
        statement = sa.select(agent_calls).where(agent_calls.c.run_id == run_id)
        ordered = statement.order_by(agent_calls.c.assistant_seq, agent_calls.c.index)
        return [Call(**row._mapping) for row in await connection.execute(ordered)]

    return Settled(
        run=run,
        invocation=invocation,
        rows=await database.read(turns.load_messages, run_id),
        calls=await database.read(calls),
        frames=await frames.read(invocation.stream_id, 0, 10_000),
    )
