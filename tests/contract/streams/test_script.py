"""The frame script on a real Redis and on the embedded Valkey: every rule of who may write what, and when."""

import asyncio
import secrets
from collections.abc import AsyncIterator
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies as st
from redis.asyncio import Redis
from tests.contract.streams.operations import (
    MESSAGE,
    RESULT,
    REWIND,
    REWIND_ALL,
    SID,
    append,
    close,
    numbered,
    one,
    opened,
    reset,
    texts,
)
from tests.redis_servers import sweep, valkey_server

from runyard.errors import StoreUnavailable
from runyard.frames import Payload
from runyard.streams.batch import decode_batch
from runyard.streams.connect import connect, redis_run_id
from runyard.streams.memory import MemoryFrames
from runyard.streams.ops import Answer, Append, Close, Op, Status, Touch
from runyard.streams.store import FrameStore

pytestmark = pytest.mark.anyio


@pytest.fixture
async def client(redis_url: str) -> AsyncIterator[Redis]:
    client = connect(redis_url)
    yield client
    await client.aclose()


@pytest.fixture
def prefix() -> str:
    return f"test-{secrets.token_hex(6)}"


@pytest.fixture
async def store(client: Redis, prefix: str) -> AsyncIterator[FrameStore]:
    yield new_store(client, prefix)
    await sweep(client, prefix)


def new_store(client: Redis, prefix: str, *, max_bytes: int = 4_194_304, max_streams: int = 1000) -> FrameStore:
    return FrameStore(client, prefix=prefix, retain_s=60, max_bytes=max_bytes, max_streams=max_streams)


# The server forgets --------------------------------------------------------------------------------------------------


async def test_frames_evicted_by_the_server_are_a_missing_stream(store: FrameStore, client: Redis) -> None:
    await store.apply([opened(), append(1, "a")])
    await client.delete(store.keys.frames(SID))
    assert await store.info(SID) is None
    assert await one(store, append(2, "b")) == Answer(Status.MISSING, 0)
    assert await one(store, opened()) == Answer(Status.OK, 0, created=True)


# Budget, time to live, index of finished streams --------------------------------------------------------------------


async def test_bytes_are_counted_exactly(client: Redis, prefix: str, store: FrameStore) -> None:
    kept = new_store(client, prefix, max_bytes=307)
    tick = Payload("tick", b"1")
    await kept.apply([opened(), append(1, "x" * 10), Append(stream_id=SID, generation=1, first=2, frames=[tick])])
    assert await client.hget(store.keys.meta(SID), "bytes") == b"%d" % (10 + 96 + 1 + 4 + 96)
    await kept.apply([append(3, "x" * 4)])  # 307: still within
    assert [frame.seq for frame in await store.read(SID, 0)] == [1, 2, 3]
    await kept.apply([append(4, "y")])
    assert [frame.seq for frame in await store.read(SID, 0)] == [2, 3, 4]
    assert await client.hget(store.keys.meta(SID), "bytes") == b"%d" % (1 + 4 + 96 + 4 + 96 + 1 + 96)


@pytest.mark.parametrize("batch", [1, 7, 200, 1000])
async def test_a_long_stream_keeps_its_newest_frames_whole(
    client: Redis, prefix: str, store: FrameStore, batch: int
) -> None:
    small = new_store(client, prefix, max_bytes=200 * 100)
    await small.apply([opened()])
    for first in range(1, 1001, batch):
        numbers = range(first, min(first + batch, 1001))
        await small.apply([append(first, *(f"{number:04}" for number in numbers))])
    info = await store.info(SID)
    assert info is not None
    assert (info.first, info.last) == (801, 1000)
    frames = await store.read(SID, 800)
    assert [(frame.seq, frame.data) for frame in frames] == [(seq, b"%04d" % seq) for seq in range(801, 1001)]
    assert await client.hget(store.keys.meta(SID), "bytes") == b"20000"
    assert await client.xlen(store.keys.frames(SID)) == 200


async def test_every_key_lives_for_the_retention_and_a_touch_renews_it(store: FrameStore, client: Redis) -> None:
    await store.apply([opened(), append(1, "a")])
    keys = [store.keys.frames(SID), store.keys.meta(SID)]
    for key in keys:
        assert 50_000 < await client.pttl(key) <= 60_000
        await client.pexpire(key, 10_000)
    await one(store, append(2, "b"))
    assert [await client.pttl(key) <= 10_000 for key in keys] == [True, True]  # a frame costs no PEXPIRE
    assert await one(store, Touch(stream_id=SID, generation=1)) == Answer(Status.OK, 2)
    assert [await client.pttl(key) > 50_000 for key in keys] == [True, True]
    for key in keys:
        await client.pexpire(key, 10_000)
    await store.close(close(2))
    assert [await client.pttl(key) > 50_000 for key in [*keys, store.keys.finished]] == [True, True, True]


async def test_finished_streams_beyond_the_limit_go_oldest_first(client: Redis, prefix: str, store: FrameStore) -> None:
    few = new_store(client, prefix, max_streams=2)
    await few.apply([opened(stream_id="st_live"), append(1, "a", stream_id="st_live")])
    for number in range(4):
        await few.close(Close(stream_id=f"st_{number}", settled_last=0, frames=[RESULT]))
        # The index has milliseconds of Redis' clock: make the order certain.
        await client.zadd(store.keys.finished, {f"st_{number}": number - 10}, incr=True)
    infos = await store.infos([f"st_{number}" for number in range(4)] + ["st_live"])
    assert set(infos) == {"st_2", "st_3", "st_live"}
    assert await client.zrange(store.keys.finished, 0, -1) == [b"st_2", b"st_3"]


# Published batches --------------------------------------------------------------------------------------------------


async def test_each_accepted_operation_is_published_once(store: FrameStore, client: Redis) -> None:
    async with client.pubsub(ignore_subscribe_messages=True) as listener:
        await listener.subscribe(store.keys.channel(SID))
        await listener.get_message(timeout=10)
        await store.apply([opened(), append(1, "a", "é"), append(1, "again"), append(4, "gap")])
        await store.apply([append(3, "c"), Touch(stream_id=SID, generation=1), reset(1000, "ab")])
        await store.apply([append(1002, "late", generation=1)])
        await store.close(close(1001))
        await store.close(close(1001))
        expected = [
            numbered(1, *texts("a", "é")),
            numbered(3, *texts("c")),
            numbered(1000, REWIND_ALL, *texts("ab")),
            numbered(1002, *texts("late")),
            numbered(1003, REWIND, MESSAGE, RESULT),
        ]
        received = [decode_batch((await listener.get_message(timeout=10))["data"]) for _ in expected]
        assert received == expected
        assert await listener.get_message(timeout=0) is None


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\x01",
        b"\x02" + bytes(12),
        b"\x01" + bytes(12),
        b"\x01" + bytes(8) + b"\x00\x00\x00\x05",
        b"hello, world, hello",
    ],
)
def test_what_is_no_batch_is_refused(message: bytes) -> None:
    with pytest.raises(ValueError, match="a batch"):
        decode_batch(message)


# The server -----------------------------------------------------------------------------------------------------------


async def test_the_script_survives_a_script_flush(store: FrameStore, client: Redis) -> None:
    await store.apply([opened(), append(1, "a")])
    await client.script_flush()
    assert await one(store, append(2, "b")) == Answer(Status.OK, 2)


async def test_the_run_id_names_the_server(client: Redis, redis_url: str) -> None:
    other = connect(redis_url)
    assert await redis_run_id(client) == await redis_run_id(other)
    assert len(await redis_run_id(client)) == 40
    await other.aclose()


async def test_a_server_that_is_away_is_told_as_such(prefix: str) -> None:
    client = connect("redis://127.0.0.1:1")
    away = new_store(client, prefix)
    for call in (away.apply([opened()]), away.read(SID, 0), away.info(SID), redis_run_id(client)):
        with pytest.raises(StoreUnavailable):
            await call
    await client.aclose()


NUMBERS = st.integers(1, 9)
GENERATIONS = st.integers(1, 3)
OP = st.one_of(
    st.builds(opened, GENERATIONS),
    st.builds(append, st.integers(1, 6), st.just("a"), st.just("b"), generation=GENERATIONS),
    st.builds(reset, NUMBERS, st.just("r"), generation=GENERATIONS),
    st.builds(Touch, stream_id=st.just(SID), generation=GENERATIONS),
    st.builds(close, st.integers(0, 9), rewind=st.sampled_from([None, REWIND]), base=st.integers(0, 9)),
)


@hypothesis.given(ops=st.lists(OP, max_size=30), max_bytes=st.sampled_from([150, 400, 4_194_304]))
@hypothesis.settings(max_examples=100)
def test_the_store_in_memory_answers_as_redis_does(redis_url: str, ops: list[Op], max_bytes: int) -> None:
    async def scenario() -> None:
        client = connect(redis_url)
        store = new_store(client, f"test-{secrets.token_hex(6)}", max_bytes=max_bytes)
        memory = MemoryFrames(max_bytes=max_bytes)
        assert await memory.apply(ops) == await store.apply(ops)
        assert await memory.info(SID) == await store.info(SID)
        assert await memory.read(SID, 0) == await store.read(SID, 0)
        await client.delete(store.keys.frames(SID), store.keys.meta(SID), store.keys.finished)
        await client.aclose()

    asyncio.run(scenario())


async def test_a_primary_that_became_a_replica_is_left(prefix: str) -> None:
    """After a failover the old primary answers on: only a new connection finds the new one."""
    with valkey_server() as url:
        client = connect(url)
        store = new_store(client, prefix)
        await store.apply([opened()])
        connection_id = await client.client_id()
        await client.replicaof("127.0.0.1", "1")
        with pytest.raises(StoreUnavailable):
            await store.apply([append(1, "a")])
        await client.replicaof("NO", "ONE")
        assert await one(store, append(1, "a")) == Answer(Status.OK, 1)
        assert await client.client_id() != connection_id
        await client.aclose()


# Keys that make no sense -------------------------------------------------------------------------------------------

NONSENSE = {
    "frames of another type": lambda keys: ("SET", keys.frames(SID), "x"),
    "meta of another type": lambda keys: ("SET", keys.meta(SID), "x"),
    "meta without a field": lambda keys: ("HDEL", keys.meta(SID), "bytes", "last"),
    "meta that is no number": lambda keys: ("HSET", keys.meta(SID), "last", "x"),
    "frames beyond the meta's": lambda keys: ("XADD", keys.frames(SID), "77-0", "d", "x"),
}


@pytest.mark.parametrize("spoil", NONSENSE.values(), ids=NONSENSE.keys())
async def test_a_stream_that_makes_no_sense_holds_no_other_up(store: FrameStore, client: Redis, spoil: Any) -> None:
    """It is dropped as if it had been lost: to the writer it is missing, and a reset begins it anew."""
    await store.apply([opened(), append(1, "a", "b"), opened(stream_id="st_2")])
    await client.execute_command(*spoil(store.keys))
    infos = await store.infos([SID, "st_2"])
    assert "st_2" in infos
    answers = await store.apply([append(3, "c"), append(1, "x", stream_id="st_2")])
    assert answers == [Answer(Status.MISSING, 0), Answer(Status.OK, 1)]
    assert await store.read("st_2", 0) == numbered(1, *texts("x"))
    assert await one(store, reset(50, "abc")) == Answer(Status.OK, 51)
    assert await store.read(SID, 0) == numbered(50, REWIND_ALL, *texts("abc"))


@pytest.mark.parametrize("spoil", NONSENSE.values(), ids=NONSENSE.keys())
async def test_a_stream_that_makes_no_sense_is_opened_and_closed(store: FrameStore, client: Redis, spoil: Any) -> None:
    await store.apply([opened(), append(1, "a", "b")])
    await client.execute_command(*spoil(store.keys))
    assert await one(store, close(2)) in (Answer(Status.BELOW, 0), Answer(Status.OK, 4))
    await client.execute_command("SET", store.keys.meta(SID), "x", "EX", 60)
    assert await one(store, opened(2)) == Answer(Status.OK, 0, created=True)


async def test_what_blames_the_server_fails_the_call_and_drops_nothing() -> None:
    with valkey_server() as url:
        admin = connect(url)
        store = new_store(admin, "test")
        await store.apply([opened(), append(1, "a")])
        await admin.config_set("maxmemory", "1")
        with pytest.raises(StoreUnavailable, match=r"^Redis refuses: OutOfMemoryError$"):
            await store.apply([append(2, "b")])
        await admin.config_set("maxmemory", "0")
        assert await store.apply([append(2, "b")]) == [Answer(Status.OK, 2)]
        assert await store.read(SID, 0) == numbered(1, *texts("a", "b"))
        await admin.aclose()
