"""Workers that are interrupted at a chosen point of their work, and the others that go on with their runs.

A point is where a process can end or be met by something from outside: before and after each transaction, each call of
the frame script, each event of a model's stream, each act of a tool. They are counted, so that a test can try them all.
"""

import asyncio
import math
import re
import secrets
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Self

from redis.asyncio import Redis
from tests.contract.execution.crew import Crew, give_back_all
from tests.contract.execution.redis_losses import Loss, forget_all, forget_newest
from tests.contract.execution.worker import GUARD_S, FakeFrameServer, Reader, Settled, SwitchableStore, Worker, look
from tests.contract.store import states
from tests.fakes.databases import FaultyDatabase
from tests.fakes.provider import MODEL, Script, Step, says
from tests.standin import InvalidTranscript, validate
from tests.standin.ledger import Ledger

from runyard import RunContext, tool
from runyard.authoring.agents import agent
from runyard.blocks import as_blocks
from runyard.db import claims, deaths, turns
from runyard.db.locks import lock_owned
from runyard.db.workers import Registration, register
from runyard.errors import CommitUnknown, StoreUnavailable, WorkerGone
from runyard.frames import Frame
from runyard.ids import RunId, WorkerId, new_worker_id
from runyard.lifecycle.accept import accept_turn
from runyard.lifecycle.cancelling import cancel_run
from runyard.lifecycle.endings import stored_ending
from runyard.runs import BUSY, SETTLED
from runyard.streams.ops import Answer, Op
from runyard_workers.closer import Closer
from runyard_workers.flusher import Flusher
from runyard_workers.liveness import Liveness
from runyard_workers.providers.model import ModelEvent, ModelRequest, Provider, Turn
from runyard_workers.threads import ToolThreads

FALLBACK = "claude-haiku-4-5"
AWAY_S = 0.01
TAG = re.compile(r"(\d+): ")
"""Each scripted turn begins its text with its number."""


class Kind(StrEnum):
    """What happens at the point."""

    CRASH = "crash"  # the process ends there and then; another one buries it
    LOST_REQUEST = "lost request"  # a commit that did not happen, and nobody knows
    LOST_ANSWER = "lost answer"  # one that did happen, and nobody knows
    AWAY = "away"  # the database does not answer once
    HAND_OVER = "hand-over"  # SIGTERM
    HURRY = "hurry"  # SIGTERM twice
    STOLEN = "stolen"  # the worker is buried while it works on
    CANCEL = "cancel"  # a person stops the run
    STEER = "steer"  # a person adds something
    REDIS_AWAY = "redis away"  # for a moment
    REDIS_FORGETS_ALL = "redis forgets all"  # it restarts without the stream
    REDIS_FORGETS_NEWEST = "redis forgets newest"  # it restarts with its first frames


@dataclass(frozen=True, kw_only=True)
class Interruption:
    """`at`: the number of the point, from 1, in the life of one worker."""

    kind: Kind
    at: int

    def __str__(self) -> str:
        return f"{self.kind} at point {self.at}"


class Effects:
    """What tools did to the world, by the keys of their calls."""

    def __init__(self) -> None:
        self.paid: list[str | None] = []
        self.fetched: list[str | None] = []
        self.fetched_for: dict[str | None, set[str | None]] = {}

    def tools(self, life: "Life") -> list[Any]:
        @tool
        async def pay(ctx: RunContext) -> str:
            await life.point("pay begins")
            self.paid.append(ctx.idempotency_key)
            ctx.stream.write("paying")
            await life.point("pay ends")
            return "paid"

        @tool(idempotent=True)
        async def fetch(ctx: RunContext) -> str:
            await life.point("fetch begins")
            self.fetched.append(ctx.idempotency_key)
            self.fetched_for.setdefault(ctx.call_id, set()).add(ctx.idempotency_key)
            await life.point("fetch ends")
            return "fetched"

        @tool(exclusive=True)
        def tidy(ctx: RunContext) -> str:
            self.paid.append(ctx.idempotency_key)
            return "tidied"

        return [pay, fetch, tidy]


@dataclass(kw_only=True)
class Stage:
    """One run, the workers that it meets, and what outlives them.

    `attempts[n]`: what the model plays for its turn n at the first, the second, ... and every further call.
    """

    database: FaultyDatabase
    redis: Redis
    prefix: str
    attempts: Sequence[Sequence[Script]] = ()
    stream_max_bytes: int = 4_194_304
    server: FakeFrameServer = field(default_factory=FakeFrameServer)
    effects: Effects = field(default_factory=Effects)
    sent: Ledger = field(default_factory=Ledger)
    reader: Reader = field(default_factory=Reader)
    asked: Counter[int] = field(default_factory=Counter)
    complaints: list[str] = field(default_factory=list)
    steering: list[str] = field(default_factory=list)
    stream_id: str = field(init=False)
    run_id: RunId = field(init=False)
    burials: int = 0
    frames: list[Frame] = field(default_factory=list)
    """All that the reader got of the last stream."""

    _reading: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def steps(self, request: ModelRequest) -> AsyncGenerator[Step, None]:
        """What the model does when it is asked this."""
        for step in self._script(request):
            yield step

    def _script(self, request: ModelRequest) -> Script:
        number = self.turn_after(request.messages)
        if number >= len(self.attempts):
            return says(f"{number}: ", "well.")
        attempts = self.attempts[number]
        self.asked[number] += 1
        return attempts[min(self.asked[number], len(attempts)) - 1]

    @staticmethod
    def turn_after(messages: Sequence[dict[str, Any]]) -> int:
        texts = [
            block["text"]
            for message in messages
            if message["role"] == "assistant"
            for block in as_blocks(message["content"])
            if block["type"] == "text"
        ]
        return max((int(tag[1]) + 1 for text in texts if (tag := TAG.match(text))), default=0)

    async def read(self, store: SwitchableStore) -> None:
        """The reader is never far behind."""
        async with self._reading:
            for frame in await store.read(self.stream_id, self.reader.last):
                try:
                    self.reader.feed(frame)
                except AssertionError as complaint:
                    self.complaints.append(f"a reader of {self.reader.last} frames gets {frame}: {complaint}")
                self.frames.append(frame)


class Killed(asyncio.CancelledError):
    """A process that has ended does nothing more, and cleans nothing up."""


class Life:
    """One worker's process, from its start to its end, with what is to happen in it."""

    def __init__(self, stage: Stage, interruption: Interruption | None) -> None:
        self.stage = stage
        self.points = 0
        self.trail: list[str] = []
        self.struck = asyncio.Event()
        self.is_dead = False
        self.is_redis_away = False
        self._interruption = interruption
        self._commit_fault: Kind | None = None
        self._own: list[asyncio.Task[Any]] = []
        self._leaving: list[asyncio.Task[Any]] = []

    async def __aenter__(self) -> Self:
        stage = self.stage
        self.worker_id = WorkerId(new_worker_id())
        registration = Registration(worker_id=self.worker_id, host="host-1", slots=4, queues=("default",), manifests={})
        await stage.database.write(_sync, register, registration)
        database, frames = LifeDatabase(self), LifeStore(self)
        liveness = Liveness()
        liveness.seen(math.inf)
        self.worker = LifeWorker(
            life=self,
            database=database,
            store=frames,
            worker_id=self.worker_id,
            server=stage.server,
            flusher=Flusher(frames),
            closer=Closer(database, frames),  # type: ignore[arg-type]
            threads=ToolThreads(4),
            liveness=liveness,
            provider=LifeProvider(self),
            agent=agent(model=MODEL, fallbacks=[FALLBACK], tools=stage.effects.tools(self)),
        )
        self.crew = Crew(worker=self.worker)
        self._own = [asyncio.create_task(self.worker.flusher.run()), asyncio.create_task(self.worker.closer.run())]
        return self

    async def __aexit__(self, *_: object) -> None:
        self.is_dead = True
        tasks = [*self._own, *self._leaving, *self.crew.runner._tasks.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def work(self, claim: claims.Claim) -> None:
        """Until the run has left this worker and its stream is closed, or the worker is dead or taken for dead."""
        self.crew.start(claim)
        ending = asyncio.create_task(self.left())
        struck = asyncio.create_task(self.struck.wait())
        async with asyncio.timeout(GUARD_S):
            await asyncio.wait([ending, struck], return_when=asyncio.FIRST_COMPLETED)
        ending.cancel()
        struck.cancel()

    async def left(self) -> None:
        await self.crew.runner.left()
        await asyncio.gather(*self._leaving)
        await self.worker.closer.drained()

    async def bury(self) -> None:
        given = await self.stage.database.write(_sync, deaths.bury, self.worker_id, 0)
        self.stage.burials += len(given or [])

    async def point(self, name: str) -> None:
        if self.is_dead:
            raise Killed
        self.points += 1
        self.trail.append(name)
        if self._interruption is not None and self._interruption.at == self.points:
            await self._strike(self._interruption.kind)

    def take_commit_fault(self) -> Kind | None:
        fault, self._commit_fault = self._commit_fault, None
        return fault

    async def _strike(self, kind: Kind) -> None:
        stage = self.stage
        match kind:
            case Kind.CRASH:
                self.is_dead = True
                self.struck.set()
                raise Killed
            case Kind.LOST_REQUEST | Kind.LOST_ANSWER | Kind.AWAY:
                self._commit_fault = kind
            case Kind.HAND_OVER:
                hand_over = self.crew.runner.hand_over_all(GUARD_S, asyncio.Event())
                self._leaving.append(asyncio.create_task(hand_over))
            case Kind.HURRY:
                self._leaving.append(asyncio.create_task(give_back_all(self.crew.runner)))
            case Kind.STOLEN:
                # In a task of its own: whoever loses the run by it drops the tool that stands here, and a burial that
                # is committed must be counted all the same.
                stealing = asyncio.create_task(self._steal())
                self._leaving.append(stealing)
                await asyncio.shield(stealing)
            case Kind.CANCEL:
                done = await stage.database.write(cancel_run, stage.run_id, states.OWNER, at=states.AT)
                stage.steering = [words for words in stage.steering if words not in [e.content for e in done.dropped]]
                self.crew.runner.look_at(stage.run_id)
            case Kind.STEER:
                if words := await stage.database.write(_steer, stage.run_id):
                    stage.steering.append(words)
            case Kind.REDIS_AWAY:
                await self.lose_redis()
            case Kind.REDIS_FORGETS_ALL:
                await self.restart_redis(forget_all)
            case Kind.REDIS_FORGETS_NEWEST:
                await self.restart_redis(forget_newest)

    async def _steal(self) -> None:
        await self.bury()
        self.struck.set()

    async def lose_redis(self) -> None:
        """For a moment."""
        self.is_redis_away = True
        asyncio.get_running_loop().call_later(AWAY_S, lambda: setattr(self, "is_redis_away", False))

    async def restart_redis(self, forget: Loss) -> None:
        """Only a restart forgets, and it shows."""
        self.stage.server.now = f"{self.stage.server.now}+"
        await forget(self.worker, self.stage.stream_id)


async def _steer(connection: Any, run_id: RunId) -> str | None:
    """Add to what runs; None: nothing does."""
    run = await lock_owned(connection, run_id, states.OWNER)
    if run is None or run.status not in BUSY or run.cancel_requested:
        return None
    words = f"and {secrets.token_hex(4)}"
    await accept_turn(connection, states.new_turn(continues=run_id, content=words))
    return words


async def _sync(connection: Any, work: Callable[..., Any], *args: Any) -> Any:
    return await connection.run_sync(work, *args)


@dataclass(kw_only=True)
class LifeWorker(Worker):
    life: Life

    def script(self, *scripts: Script, **options: Any) -> None:
        raise AssertionError("scripts are given to the stage, which all of its lives share")


class LifeDatabase:
    """The stage's database as one worker's process sees it."""

    def __init__(self, life: Life) -> None:
        self._life = life
        self._database = life.stage.database
        self.is_sqlite = self._database.is_sqlite
        self.written: list[str] = []

    async def read(self, work: Any, *args: Any, **kwargs: Any) -> Any:
        await self._life.point(f"before {work.__name__}")
        return await self._database.read(work, *args, **kwargs)

    async def write(self, work: Any, *args: Any, **kwargs: Any) -> Any:
        return await self._happens(self._database.write, work, *args, **kwargs)

    async def write_at_once(self, work: Any, *args: Any, **kwargs: Any) -> Any:
        return await self._happens(self._database.write_at_once, work, *args, **kwargs)

    async def _happens(self, write: Callable[..., Awaitable[Any]], work: Any, *args: Any, **kwargs: Any) -> Any:
        await self._life.point(f"before {work.__name__}")
        fault = self._life.take_commit_fault()
        if fault is Kind.AWAY:
            raise StoreUnavailable("the database does not answer")
        if fault is Kind.LOST_REQUEST:
            raise CommitUnknown("the database did not answer a commit")
        result = await write(work, *args, **kwargs)
        await self._life.point(f"after {work.__name__}")
        if fault is Kind.LOST_ANSWER:
            raise CommitUnknown("the database did not answer a commit")
        return result


class LifeStore(SwitchableStore):
    """The frame script as one worker's process reaches it; what it stores the stage's reader has at once."""

    def __init__(self, life: Life) -> None:
        super().__init__(
            life.stage.redis,
            life.stage.server,
            prefix=life.stage.prefix,
            retain_s=60,
            max_bytes=life.stage.stream_max_bytes,
            max_streams=1000,
        )
        self._life = life

    async def apply(self, ops: Sequence[Op]) -> list[Answer]:
        await self._life.point("before frames")
        if self._life.is_redis_away:
            raise StoreUnavailable("Redis does not answer")
        answers = await super().apply(ops)
        await self._life.stage.read(self)
        await self._life.point("after frames")
        return answers


class LifeProvider(Provider):
    """The stage's model, whose requests are judged; all names lead to it."""

    name = "scripted"

    def __init__(self, life: Life) -> None:
        self._life = life

    def resolve(self, model: str | None) -> tuple[Provider, str]:
        return self, model or MODEL

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        stage = self._life.stage
        self._judge(request)
        async for step in stage.steps(request):
            await self._life.point("before a model event")
            if isinstance(step, Exception):
                raise step
            if isinstance(step, Turn):
                self._note(step)
            yield step  # type: ignore[misc]
        await self._life.point("after the model")

    def _judge(self, request: ModelRequest) -> None:
        body = {"model": request.model, "max_tokens": request.max_tokens, "messages": request.messages, "stream": True}
        try:
            validate(body | {"tools": request.tools}, sent=self._life.stage.sent)
        except InvalidTranscript as refusal:
            self._life.stage.complaints.append(f"{refusal}: {request.messages}")

    def _note(self, turn: Turn) -> None:
        sent = self._life.stage.sent
        message = sent.open(f"msg_{len(sent.messages)}")
        for block in turn.content:
            if block["type"] != "thinking" or block["signature"]:  # else it was cut
                sent.add(message, block)
        message.stop_reason, message.complete = turn.stop_reason, True


async def play(stage: Stage, interruptions: Sequence[Interruption], continues: RunId | None = None) -> list[Life]:
    """Accept a turn and work on it until it has ended and its stream is closed; one interruption a worker.

    Returns the workers that it took.
    """
    turn = states.new_turn(content="go on" if continues else "go", continues=continues)
    stage.stream_id, stage.run_id = turn.stream_id, continues or turn.run_id
    stage.reader, stage.frames = Reader(), []
    await stage.database.write(accept_turn, turn)
    left = list(interruptions)
    lives: list[Life] = []
    async with asyncio.timeout(GUARD_S):
        while (await states.run_row(stage.database, stage.run_id)).status not in SETTLED:
            await _live(stage, left.pop(0) if left else None, lives)
        await _close(stage)
    return lives


async def _live(stage: Stage, interruption: Interruption | None, lives: list[Life]) -> None:
    """One worker after the other; one that is taken for dead goes on beside those that follow."""
    async with Life(stage, interruption) as life:
        lives.append(life)
        try:
            claim = await states.claim(life.worker.database, life.worker_id, redis_run_id=stage.server.run_id)
        except (Killed, StoreUnavailable, WorkerGone):
            await life.bury()  # also of a living worker: what its claim may have taken is given back
            return
        if claim is None:  # it was cancelled in the queue
            return
        await life.work(claim)
        if life.is_dead:
            await life.bury()
        elif life.struck.is_set():
            await _live(stage, None, lives)
            async with asyncio.timeout(GUARD_S):
                await life.left()


async def _close(stage: Stage) -> None:
    """As the sweep of late closes does."""
    run, invocation = await states.run_and_invocation(stage.database, stage.run_id)
    async with Life(stage, None) as life:
        if not invocation.stream_closed:
            rows = await stage.database.read(turns.load_messages, run.id)
            life.worker.closer.close(stored_ending(invocation, rows))
            await life.worker.closer.drained()
        await stage.read(life.worker.store)


async def settled(stage: Stage) -> Settled:
    async with Life(stage, None) as life:
        return await look(stage.database, life.worker.store, stage.run_id)
