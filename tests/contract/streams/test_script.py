"""The frame script on a real Redis and on the embedded Valkey: every rule of who may write what, and when."""

import asyncio
import secrets
from collections.abc import AsyncIterator
from itertools import pairwise
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies as st
from redis.asyncio import Redis
from tests.fakes.frame_store import FakeFrameStore
from tests.redis_servers import sweep, valkey_server

from runyard.errors import StoreUnavailable
from runyard.frames import Frame, Payload, event_payload, text_payload
from runyard.streams.batch import decode_batch
from runyard.streams.connect import connect, redis_run_id
from runyard.streams.ops import Answer, Append, Close, Op, Open, Reset, Status, Touch
from runyard.streams.reader import StreamInfo, StreamState
from runyard.streams.store import FrameStore

pytestmark = pytest.mark.anyio

SID = "st_1"
RESULT = event_payload("result", {"status": "completed"})
MESSAGE = event_payload("message", {"seq": 2, "role": "assistant"})
REWIND = event_payload("rewind", {"toSeq": 2, "length": 2})
REWIND_ALL = event_payload("rewind", {"toSeq": 0, "length": 0})


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


def texts(*words: str) -> list[Payload]:
    return [text_payload(word) for word in words]


def opened(generation: int = 1, stream_id: str = SID) -> Open:
    return Open(stream_id=stream_id, generation=generation)


def append(first: int, *words: str, generation: int = 1, stream_id: str = SID) -> Append:
    return Append(stream_id=stream_id, generation=generation, first=first, frames=texts(*words))


def close(settled_last: int, *, rewind: Payload | None = REWIND, base: int = 0) -> Close:
    frames = [MESSAGE, RESULT]
    base_frames = [REWIND_ALL, text_payload("ab")]
    return Close(
        stream_id=SID, settled_last=settled_last, frames=frames, rewind=rewind, base=base, base_frames=base_frames
    )


def reset(base: int, *words: str, generation: int = 1) -> Reset:
    return Reset(stream_id=SID, generation=generation, base=base, frames=[REWIND_ALL, *texts(*words)])


def numbered(first: int, *payloads: Payload) -> list[Frame]:
    return [Frame(seq, *payload) for seq, payload in enumerate(payloads, first)]


async def one(store: FrameStore, op: Op) -> Answer:
    (answer,) = await store.apply([op])
    return answer


# Open and append ----------------------------------------------------------------------------------------------------


async def test_a_new_stream_is_opened_and_written_in_one_call(store: FrameStore) -> None:
    answers = await store.apply([opened(), append(1, "a", "b")])
    assert answers == [Answer(Status.OK, 0, created=True), Answer(Status.OK, 2)]
    assert await store.read(SID, 0) == numbered(1, *texts("a", "b"))
    assert await store.info(SID) == StreamInfo(StreamState.LIVE, first=1, last=2, base=0, generation=1)


async def test_payloads_come_back_as_they_went_in(store: FrameStore) -> None:
    payloads = [
        Payload(None, b""),
        text_payload(" \n\n\N{LINE SEPARATOR}é\N{SNOWMAN}"),
        text_payload("a\rb"),
        event_payload("tool", {"name": "x"}),
        Payload("thinking", b"hm\nhm"),
    ]
    await store.apply([opened(), Append(stream_id=SID, generation=1, first=1, frames=payloads)])
    assert await store.read(SID, 0) == numbered(1, *payloads)


async def test_an_empty_stream_has_no_frame_and_can_be_read_from_its_start(store: FrameStore) -> None:
    await one(store, opened())
    info = await store.info(SID)
    assert info == StreamInfo(StreamState.LIVE, first=1, last=0, base=0, generation=1)
    assert not info.has_lost(0)
    assert await store.read(SID, 0) == []


async def test_an_unknown_stream_has_no_info(store: FrameStore) -> None:
    assert await store.info("st_none") is None
    assert await store.read("st_none", 0) == []
    assert await store.infos([]) == {}


async def test_opening_again_raises_the_generation_and_never_lowers_it(store: FrameStore) -> None:
    await store.apply([opened(3), append(1, "a", generation=3)])
    assert await one(store, opened(5)) == Answer(Status.OK, 1, created=False)
    assert await one(store, opened(5)) == Answer(Status.OK, 1, created=False)
    assert await one(store, opened(4)) == Answer(Status.FENCED, 1)
    info = await store.info(SID)
    assert info is not None
    assert info.generation == 5


async def test_the_older_generation_is_fenced_off(store: FrameStore) -> None:
    await store.apply([opened(1), append(1, "a"), opened(2)])
    assert await one(store, append(2, "b")) == Answer(Status.FENCED, 1)
    assert await one(store, Touch(stream_id=SID, generation=1)) == Answer(Status.FENCED, 1)
    assert await one(store, reset(1000)) == Answer(Status.FENCED, 1)
    assert await one(store, append(2, "c", generation=2)) == Answer(Status.OK, 2)
    assert await store.read(SID, 0) == numbered(1, *texts("a", "c"))


async def test_a_generation_that_was_never_opened_may_not_write(store: FrameStore) -> None:
    await store.apply([opened(1), append(1, "a")])
    assert await one(store, append(2, "b", generation=2)) == Answer(Status.GAP, 1)


async def test_append_takes_only_the_next_number(store: FrameStore) -> None:
    await store.apply([opened(), append(1, "a", "b")])
    assert await one(store, append(2, "b")) == Answer(Status.GAP, 2)  # sent again: the writer skips
    assert await one(store, append(4, "d")) == Answer(Status.GAP, 2)  # frames were lost
    assert await one(store, append(3, "c")) == Answer(Status.OK, 3)
    assert [frame.data for frame in await store.read(SID, 0)] == [b"a", b"b", b"c"]


async def test_append_to_a_missing_stream_makes_none(store: FrameStore) -> None:
    assert await one(store, append(1, "a")) == Answer(Status.MISSING, 0)
    assert await store.info(SID) is None


async def test_one_call_serves_many_streams_and_answers_each(store: FrameStore) -> None:
    answers = await store.apply(
        [
            opened(stream_id="st_a"),
            append(1, "a", stream_id="st_a"),
            append(1, "x", stream_id="st_none"),
            opened(2, stream_id="st_b"),
            append(1, "b", generation=1, stream_id="st_b"),
            append(2, "aa", stream_id="st_a"),
        ]
    )
    assert [answer.status for answer in answers] == ["ok", "ok", "missing", "ok", "fenced", "ok"]
    infos = await store.infos(["st_a", "st_none", "st_b"])
    assert {stream_id: info.last for stream_id, info in infos.items()} == {"st_a": 2, "st_b": 0}


async def test_frames_evicted_by_the_server_are_a_missing_stream(store: FrameStore, client: Redis) -> None:
    await store.apply([opened(), append(1, "a")])
    await client.delete(store.keys.frames(SID))
    assert await one(store, append(2, "b")) == Answer(Status.MISSING, 0)
    assert await one(store, opened()) == Answer(Status.OK, 0, created=True)


# Close ---------------------------------------------------------------------------------------------------------------


async def test_close_writes_the_last_frames_and_the_first_one_wins(store: FrameStore) -> None:
    await store.apply([opened(), append(1, "a", "b")])
    assert await store.close(close(2)) == Answer(Status.OK, 4)
    assert await store.close(close(2)) == Answer(Status.CLOSED, 4)
    assert await one(store, append(5, "late")) == Answer(Status.CLOSED, 4)
    assert await one(store, opened(9)) == Answer(Status.CLOSED, 4)
    assert await one(store, Touch(stream_id=SID, generation=1)) == Answer(Status.CLOSED, 4)
    assert await one(store, reset(1000)) == Answer(Status.CLOSED, 4)
    assert await store.read(SID, 0) == numbered(1, *texts("a", "b"), MESSAGE, RESULT)
    info = await store.info(SID)
    assert info == StreamInfo(StreamState.CLOSED, first=1, last=4, base=0, generation=1)


async def test_close_withdraws_what_came_after_the_settlement(store: FrameStore) -> None:
    await store.apply([opened(), append(1, "a", "b", "not committed")])
    assert await store.close(close(2)) == Answer(Status.OK, 6)
    assert await store.read(SID, 2) == numbered(3, *texts("not committed"), REWIND, MESSAGE, RESULT)


async def test_close_below_the_settlement_waits_for_a_base(store: FrameStore) -> None:
    await store.apply([opened(), append(1, "a")])
    assert await store.close(close(2)) == Answer(Status.BELOW, 1)
    info = await store.info(SID)
    assert info is not None
    assert (info.state, info.last) == (StreamState.LIVE, 1)
    assert await store.close(close(2, base=1000)) == Answer(Status.OK, 1003)
    assert await store.read(SID, 0) == numbered(1000, REWIND_ALL, text_payload("ab"), MESSAGE, RESULT)
    info = await store.info(SID)
    assert info == StreamInfo(StreamState.CLOSED, first=1000, last=1003, base=1000, generation=1)
    assert not info.has_lost(1)


async def test_close_of_a_missing_stream_depends_on_what_was_committed(store: FrameStore) -> None:
    assert await store.close(close(2)) == Answer(Status.BELOW, 0)
    assert await store.info(SID) is None
    assert await store.close(close(2, base=1000)) == Answer(Status.OK, 1003)


async def test_close_of_a_missing_stream_without_committed_frames_makes_it(store: FrameStore) -> None:
    assert await store.close(close(0)) == Answer(Status.OK, 2)
    assert await store.read(SID, 0) == numbered(1, MESSAGE, RESULT)


async def test_close_with_a_base_that_the_stream_has_already_goes_on_from_it(store: FrameStore) -> None:
    await store.apply([opened(), reset(1000, "ab"), append(1002, "c")])
    assert await store.close(close(1002, base=1000)) == Answer(Status.OK, 1004)
    assert await store.read(SID, 0) == numbered(1000, REWIND_ALL, *texts("ab", "c"), MESSAGE, RESULT)


async def test_close_with_a_base_at_or_below_the_last_number_writes_nothing(store: FrameStore) -> None:
    await store.apply([opened(), append(1, "a", "b")])
    assert await store.close(close(5, base=2)) == Answer(Status.BELOW, 2)


async def test_close_in_doubt_resets_whatever_is_kept(store: FrameStore) -> None:
    await store.apply([opened(), append(1, "a", "b", "c")])
    assert await store.close(close(2, base=1000)) == Answer(Status.OK, 1003)
    assert [frame.seq for frame in await store.read(SID, 0)] == [1000, 1001, 1002, 1003]


# Reset ---------------------------------------------------------------------------------------------------------------


async def test_reset_drops_what_is_kept_and_goes_on_from_its_base(store: FrameStore) -> None:
    await store.apply([opened(), append(1, "a", "b")])
    assert await store.apply([reset(1000, "ab"), append(1002, "c")]) == [
        Answer(Status.OK, 1001),
        Answer(Status.OK, 1002),
    ]
    assert await store.read(SID, 0) == numbered(1000, REWIND_ALL, *texts("ab", "c"))
    info = await store.info(SID)
    assert info == StreamInfo(StreamState.LIVE, first=1000, last=1002, base=1000, generation=1)


async def test_reset_sent_twice_counts_once(store: FrameStore) -> None:
    await store.apply([opened(), reset(1000, "ab"), append(1002, "c")])
    assert await one(store, reset(1000, "ab")) == Answer(Status.OK, 1002)
    assert [frame.seq for frame in await store.read(SID, 0)] == [1000, 1001, 1002]


async def test_reset_makes_a_missing_stream_and_raises_the_generation(store: FrameStore) -> None:
    assert await one(store, reset(1000, generation=4)) == Answer(Status.OK, 1000)
    assert await one(store, append(1001, "a", generation=4)) == Answer(Status.OK, 1001)
    assert await one(store, reset(2000, generation=5)) == Answer(Status.OK, 2000)
    assert await one(store, append(2001, "a", generation=4)) == Answer(Status.FENCED, 2000)


async def test_reset_needs_a_base_above_what_is_kept(store: FrameStore) -> None:
    await store.apply([opened(), append(1, "a", "b")])
    assert await one(store, reset(2)) == Answer(Status.GAP, 2)


async def test_a_cursor_below_the_base_reads_on_from_it_while_its_rewind_is_kept(
    client: Redis, prefix: str, store: FrameStore
) -> None:
    small = new_store(client, prefix, max_bytes=400)
    await small.apply([opened(), append(1, "a", "b"), reset(1000, "ab")])
    info = await store.info(SID)
    assert info is not None
    assert [info.has_lost(cursor) for cursor in (0, 2, 999, 1000, 1001)] == [False] * 5
    await small.apply([append(1002, "c", "d")])  # the rewind is dropped: 4 frames are over the budget
    info = await store.info(SID)
    assert info is not None
    assert info.first > 1000
    assert info.has_lost(0)
    assert info.has_lost(999)
    assert not info.has_lost(info.first - 1)


# Budget, time to live, index of finished streams --------------------------------------------------------------------


async def test_a_budget_of_one_frame_keeps_the_newest(client: Redis, prefix: str, store: FrameStore) -> None:
    small = new_store(client, prefix, max_bytes=100)
    await small.apply([opened()])
    for seq in range(1, 11):
        assert await one(small, append(seq, "x" * 30)) == Answer(Status.OK, seq)
    info = await store.info(SID)
    assert info == StreamInfo(StreamState.LIVE, first=10, last=10, base=0, generation=1)
    assert info.has_lost(0)
    assert info.has_lost(8)
    assert not info.has_lost(9)
    assert [frame.seq for frame in await store.read(SID, 9)] == [10]


async def test_a_frame_over_the_budget_survives_alone(client: Redis, prefix: str, store: FrameStore) -> None:
    small = new_store(client, prefix, max_bytes=1000)
    await small.apply([opened(), append(1, "a", "b", "x" * 5000)])
    assert [frame.seq for frame in await store.read(SID, 0)] == [3]
    await small.apply([append(4, "c")])
    assert [frame.seq for frame in await store.read(SID, 0)] == [4]


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


async def test_a_close_over_the_budget_keeps_its_terminal_frame(client: Redis, prefix: str, store: FrameStore) -> None:
    small = new_store(client, prefix, max_bytes=100)
    await small.apply([opened(), append(1, "a", "b")])
    await small.close(close(2))
    assert await store.read(SID, 0) == numbered(4, RESULT)


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


async def test_touch_makes_no_stream(store: FrameStore) -> None:
    assert await one(store, Touch(stream_id=SID, generation=1)) == Answer(Status.MISSING, 0)
    assert await store.info(SID) is None


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


# Reading ------------------------------------------------------------------------------------------------------------


async def test_pages_join_without_a_hole_from_every_cursor(store: FrameStore) -> None:
    await store.apply([opened(), append(1, *(str(number) for number in range(1, 41)))])
    whole = await store.read(SID, 0)
    assert [frame.seq for frame in whole] == list(range(1, 41))
    for cursor in range(42):
        pages: list[Frame] = []
        after = cursor
        while page := await store.read(SID, after, count=7):
            pages += page
            after = page[-1].seq
        assert pages == whole[cursor:]


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


OP = st.one_of(
    st.builds(opened, st.integers(1, 3)),
    st.builds(append, st.integers(1, 6), st.just("a"), st.just("b"), generation=st.integers(1, 3)),
    st.builds(reset, st.integers(1, 9), st.just("r"), generation=st.integers(1, 3)),
    st.builds(Touch, stream_id=st.just(SID), generation=st.integers(1, 3)),
)


@hypothesis.given(ops=st.lists(OP, max_size=30))
@hypothesis.settings(deadline=None, max_examples=100)
def test_the_fake_store_of_the_unit_tests_answers_as_redis_does(redis_url: str, ops: list[Op]) -> None:
    async def scenario() -> None:
        client = connect(redis_url)
        store = new_store(client, f"test-{secrets.token_hex(6)}")
        fake = FakeFrameStore()
        assert await fake.apply(ops) == await store.apply(ops)
        if SID in fake.streams:
            assert await store.read(SID, 0) == fake.streams[SID].frames
        await client.delete(store.keys.frames(SID), store.keys.meta(SID))
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


async def test_interleaved_generations_leave_one_contiguous_stream(store: FrameStore) -> None:
    """Two workers believe in the run; the second opens in the middle of the first's batches."""
    await store.apply([opened(1), append(1, "a1", "a2")])
    first = await one(store, append(3, "a3"))
    second = await one(store, opened(2))
    assert (first.last, second.last) == (3, 3)
    assert await store.apply([append(4, "a4"), append(4, "b4", generation=2), append(5, "a5")]) == [
        Answer(Status.FENCED, 3),
        Answer(Status.OK, 4),
        Answer(Status.FENCED, 4),
    ]
    frames = await store.read(SID, 0)
    assert [frame.data for frame in frames] == [b"a1", b"a2", b"a3", b"b4"]
    assert all(after.seq == before.seq + 1 for before, after in pairwise(frames))


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
        with pytest.raises(StoreUnavailable):
            await store.apply([append(2, "b")])
        await admin.config_set("maxmemory", "0")
        assert await store.apply([append(2, "b")]) == [Answer(Status.OK, 2)]
        assert await store.read(SID, 0) == numbered(1, *texts("a", "b"))
        await admin.aclose()
