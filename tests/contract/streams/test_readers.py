"""Readers at two gateways, of a run to which everything happens: each frame once and in order, or a 410 or the whole.

The run is executed by real workers, its frames are in a real Redis, its readers are the answers of `GET /v1/streams`.
What a reader has at the end, after all rewinds, is the text of the rows.
"""

import asyncio
import contextlib
import secrets
from collections.abc import AsyncGenerator, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test
from redis.asyncio import Redis
from tests.contract.execution.interruptions import Life, Stage
from tests.contract.execution.redis_losses import forget_all, forget_newest
from tests.contract.execution.worker import GUARD_S, FakeFrameServer, SwitchableStore, empty
from tests.contract.store import states
from tests.contract.streams.followers import Follower, Post, posted
from tests.fakes.databases import FaultyDatabase
from tests.fakes.provider import Step, turn
from tests.fakes.rows import text, tool_use
from tests.hypothesis_profiles import search
from tests.redis_servers import redis_server

from runyard.db import reads, turns
from runyard.errors import ProviderUnavailable
from runyard.lifecycle.accept import accept_turn
from runyard.lifecycle.cancelling import cancel_run
from runyard.lifecycle.endings import stored_ending
from runyard.runs import SETTLED
from runyard.streams import connect as connecting
from runyard.streams.connect import connect
from runyard_gateway import closing, hub, tail, watcher, window
from runyard_workers import closer, commits, output, runner
from runyard_workers.providers.model import ModelRequest, TextDelta
from runyard_workers.stream_writer import StreamWriter

OVERLOADED = ProviderUnavailable("the provider answered 529: Overloaded", status=529, type="overloaded_error")
WORDS = ["a ", "longer words that fill the stream. ", "line\r\nend ", "\N{SNOWMAN}"]
MOMENTS_S = [0, 0, 0.001, 0.004]
"""How long everything goes on between two things that happen."""

FOLLOWERS_MAX = 6
RETURNS_MAX = 10
"""So often a reader may have to come again for the end of a run that has ended."""

DICE = st.lists(st.integers(0, 999), min_size=4, max_size=4)
Dice = Sequence[int]


@dataclass(kw_only=True)
class LiveStage(Stage):
    """The model does what it is told, step by step; the readers are followers."""

    orders: "asyncio.Queue[str]" = field(default_factory=asyncio.Queue)
    is_ending: bool = False

    def end(self) -> None:
        """Every answer ends behind what was ordered before."""
        self.is_ending = True
        self.orders.put_nowait("end")

    async def steps(self, request: ModelRequest) -> AsyncGenerator[Step, None]:
        said: list[str] = []
        number = sum(message["role"] == "assistant" for message in request.messages)
        while True:
            match "end" if self.is_ending and self.orders.empty() else await self.orders.get():
                case "fail":
                    yield OVERLOADED
                case "ask":
                    yield turn(*self._text(said), tool_use(f"toolu_{number}", "fetch"))
                    return
                case "end":
                    yield turn(*self._text(said))
                    return
                case words:
                    said.append(words)
                    yield TextDelta(words)

    def _text(self, said: Sequence[str]) -> list[Any]:
        return [text("".join(said))] if said else []

    async def read(self, store: SwitchableStore) -> None:
        pass


@dataclass(kw_only=True)
class World:
    """What all examples share: a database, two gateways, the event loop."""

    runner: asyncio.Runner
    database: FaultyDatabase
    redis: Redis
    prefix: str
    server: FakeFrameServer
    posts: list[Post]


@contextlib.contextmanager
def world_on(url: str) -> Iterator[World]:
    prefix = f"test-{secrets.token_hex(6)}"
    with asyncio.Runner() as runner:
        stack = contextlib.AsyncExitStack()

        async def opened() -> World:
            database, redis = FaultyDatabase(url, pool_size=4), connect(redis_server())
            stack.push_async_callback(database.close)
            stack.push_async_callback(redis.aclose)
            posts, server = [], FakeFrameServer()
            for number in range(2):
                client = connect(redis_server())
                stack.push_async_callback(client.aclose)
                posts.append(
                    await stack.enter_async_context(posted(f"{prefix}-{number}", client, server, prefix, database))
                )
            return World(runner=runner, database=database, redis=redis, prefix=prefix, server=server, posts=posts)

        world = runner.run(opened())
        try:
            yield world
        finally:
            runner.run(_sweep(world))
            runner.run(stack.aclose())


async def _sweep(world: World) -> None:
    await world.database.write(empty)
    if keys := [key async for key in world.redis.scan_iter(f"{world.prefix}:*", count=1000)]:
        await world.redis.delete(*keys)


class Reading(RuleBasedStateMachine):
    def __init__(self, world: World) -> None:
        super().__init__()
        self.world = world
        self.run = world.runner.run
        self.life: Life | None = None
        self.followers: list[Follower] = []

    @initialize(stream_max_bytes=st.sampled_from([4_194_304, 3000, 900]))
    def a_run_is_accepted(self, stream_max_bytes: int) -> None:
        world = self.world
        self.run(world.database.write(empty))
        self.stage = LiveStage(
            database=world.database,
            redis=world.redis,
            prefix=world.prefix,
            server=world.server,
            stream_max_bytes=stream_max_bytes,
        )
        accepted = states.new_turn(content="go")
        self.stage.stream_id, self.stage.run_id = accepted.stream_id, accepted.run_id
        self.run(world.database.write(accept_turn, accepted))

    # The run ----------------------------------------------------------------------------------------------------

    @rule(words=st.lists(st.sampled_from(WORDS), min_size=1, max_size=6), dice=DICE)
    def the_model_says(self, words: list[str], dice: Dice) -> None:
        self.order(dice, *words)

    @rule(order=st.sampled_from(["ask", "ask", "fail"]), dice=DICE)
    def the_model_stops(self, order: str, dice: Dice) -> None:
        self.order(dice, order)

    @rule(dice=DICE)
    def the_model_ends(self, dice: Dice) -> None:
        if dice[0] % 4 == 0:
            self.order(dice, "end")

    def order(self, dice: Dice, *orders: str) -> None:
        self.run(self.worked_on())
        for order in orders:
            self.stage.orders.put_nowait(order)
        self.goes_on(dice)

    @rule(dice=DICE)
    def the_worker_dies(self, dice: Dice) -> None:
        self.run(self.crashed())
        self.goes_on(dice)

    @rule(dice=DICE)
    def the_worker_gives_the_run_up(self, dice: Dice) -> None:
        if self.life is not None:
            self.run(self.given_up(self.life))
            self.life = None
        self.goes_on(dice)

    @rule(dice=DICE)
    def a_person_stops_the_run(self, dice: Dice) -> None:
        if dice[0] % 3 == 0:
            self.run(self.cancelled())
        self.goes_on(dice)

    @rule(dice=DICE)
    def redis_goes_away(self, dice: Dice) -> None:
        if self.life is not None:
            self.run(self.life.lose_redis())
        self.goes_on(dice)

    @rule(forget=st.sampled_from([forget_all, forget_newest]), dice=DICE)
    def redis_restarts_without_frames(self, forget: Any, dice: Dice) -> None:
        self.run(self.worked_on())
        if self.life is not None:
            self.run(self.life.restart_redis(forget))
            for post in self.world.posts:
                self.run(post.cut_subscription(self.world.redis))
        self.goes_on(dice)

    # Readers ----------------------------------------------------------------------------------------------------

    @rule(dice=DICE)
    def a_reader_comes(self, dice: Dice) -> None:
        if len(self.followers) < FOLLOWERS_MAX:
            self.followers.append(Follower(self.stage.stream_id))
            self.run(self.followers[-1].come(self.world.posts[dice[0] % 2]))
        self.goes_on(dice)

    @rule(dice=DICE, forgetting=st.integers(0, 5))
    def a_reader_comes_again(self, dice: Dice, forgetting: int) -> None:
        if self.followers:
            follower = self.followers[dice[1] % len(self.followers)]
            self.run(follower.come(self.world.posts[dice[0] % 2], forgetting=forgetting))
        self.goes_on(dice)

    @rule(dice=DICE)
    def a_reader_is_cut_off(self, dice: Dice) -> None:
        if self.followers:
            self.run(self.followers[dice[1] % len(self.followers)].leave())
        self.goes_on(dice)

    @rule(dice=DICE, count=st.integers(1, 3))
    def messages_are_lost(self, dice: Dice, count: int) -> None:
        self.world.posts[dice[0] % 2].hub.losing += count
        self.goes_on(dice)

    @rule(dice=DICE)
    def a_subscription_is_cut(self, dice: Dice) -> None:
        self.run(self.world.posts[dice[0] % 2].cut_subscription(self.world.redis))
        self.goes_on(dice)

    def goes_on(self, dice: Dice) -> None:
        self.run(asyncio.sleep(MOMENTS_S[dice[3] % len(MOMENTS_S)]))

    # Workers ----------------------------------------------------------------------------------------------------

    async def worked_on(self) -> None:
        """Somebody works on the run, unless it has ended."""
        if self.life is not None and self.life.crew.runner._tasks:
            return
        await self.crashed()
        life = await Life(self.stage, None).__aenter__()
        claim = await states.claim(life.worker.database, life.worker_id, redis_run_id=self.stage.server.run_id)
        if claim is None:
            await life.__aexit__()
            return
        life.crew.start(claim)
        self.life = life

    async def worked_off(self) -> None:
        """Until the run has left its worker."""
        if self.life is not None and (tasks := self.life.crew.runner._tasks.values()):
            await asyncio.wait([*tasks])

    async def crashed(self) -> None:
        """Whatever it has not written is lost, the end of a stream too."""
        if self.life is not None:
            await self.life.__aexit__()
            await self.life.bury()
            self.life = None

    async def given_up(self, life: Life) -> None:
        async with asyncio.timeout(GUARD_S):
            await life.crew.runner.hand_over_all(0, asyncio.Event())
        await life.__aexit__()

    async def cancelled(self) -> None:
        done = await self.world.database.write(cancel_run, self.stage.run_id, states.OWNER, at=states.AT)
        if self.life is not None:
            self.life.crew.runner.look_at(self.stage.run_id)
        if done.ending is not None:
            await closing.close_stream(self.world.posts[0].parts, done.ending)

    # The end ----------------------------------------------------------------------------------------------------

    def teardown(self) -> None:
        try:
            self.run(self.ended())
        finally:
            self.run(self.left())

    async def ended(self) -> None:
        """The run ends; every reader comes until it has its end."""
        async with asyncio.timeout(GUARD_S):
            while (await self.row()).status not in SETTLED:
                await self.worked_on()
                self.stage.end()
                await self.worked_off()
            await self.closed()
        invocation = await self.world.database.read(turns.load_invocation, (await self.row()).invocation_id)
        expected, _ = await self.world.database.read(reads.committed_answer, self.stage.run_id, invocation.id)
        newcomer = Follower(self.stage.stream_id)
        self.followers.append(newcomer)
        for number, follower in enumerate(self.followers):
            for _ in range(RETURNS_MAX):
                if follower.place.is_at_the_end:
                    break
                if not follower.is_reading:
                    await follower.come(self.world.posts[number % 2])
                await follower.ended(GUARD_S)
                assert follower.complaints == [], follower.told
            assert follower.place.is_at_the_end, follower.told
            if follower is newcomer or not follower.place.was_told:
                assert follower.place.answer.text == expected, follower.told

    async def row(self) -> Any:
        return await states.run_row(self.world.database, self.stage.run_id)

    async def closed(self) -> None:
        """By whoever settled; else as the sweep of late closes does."""
        if self.life is not None and not self.life.is_dead:
            await self.life.left()
            return
        invocation = await self.world.database.read(turns.load_invocation, (await self.row()).invocation_id)
        async with Life(self.stage, None) as life:
            rows = await self.world.database.read(turns.load_messages, self.stage.run_id)
            life.worker.closer.close(stored_ending(invocation, rows))
            await life.worker.closer.drained()

    async def left(self) -> None:
        for follower in self.followers:
            await follower.leave()
        if self.life is not None:
            await self.life.__aexit__()
        for post in self.world.posts:
            post.hub.losing = 0


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Waits of the product that are made for real times."""
    for module, name, value in (
        (commits, "BACKOFF_FIRST_S", 0.001),
        (closer, "MARK_S", 0.001),
        (closer, "RETRY_S", 0.01),
        (output, "FLUSH_BEFORE_COMMIT_S", 0.02),
        (runner, "LEAVE_POLL_S", 0.002),
        (hub, "CHECK_S", 0.05),
        (hub, "TICK_S", 0.02),
        (tail, "RETRY_S", 0.01),
        (watcher, "CHECK_S", 0.05),
        (watcher, "TELL_S", 0.05),
        (watcher, "CHECK_REDIS_AWAY_S", 0.05),
        (watcher, "LATE_CLOSE_S", 0.2),
        (window, "WINDOW_BYTES", 600),
        (connecting, "BACKOFF_FIRST_S", 0.005),
    ):
        monkeypatch.setattr(module, name, value)
    monkeypatch.setattr(StreamWriter.opened, "__defaults__", (0.02,))


@pytest.mark.timeout(0)  # a long search takes its time, and each example of it has a guard
@pytest.mark.usefixtures("impatient", "plain_logs")
@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_whatever_happens_a_reader_has_the_text_of_the_rows(database_url: str) -> None:
    with world_on(database_url) as world:
        run_state_machine_as_test(lambda: Reading(world), settings=search(examples=25, steps=30))


@pytest.mark.usefixtures("impatient", "plain_logs")
@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
@pytest.mark.parametrize("forget", [forget_all, forget_newest])
def test_the_end_comes_behind_all_that_a_reader_has_seen(database_url: str, forget: Any) -> None:
    """The worker is dead, Redis restarted without what it wrote last, and a person cancels the run in the queue."""
    at_once = (0, 0, 0, 0)
    with world_on(database_url) as world:
        reading = Reading(world)
        reading.a_run_is_accepted(4_194_304)
        reading.a_reader_comes(at_once)
        (reader,) = reading.followers
        reading.the_model_says(["a ", "half ", "answer"], at_once)
        reading.run(reader.has("a half answer"))
        assert reading.life is not None
        reading.run(reading.life.restart_redis(forget))
        reading.the_worker_dies(at_once)
        reading.a_person_stops_the_run(at_once)
        reading.teardown()
        assert reader.place.answer.text == ""
