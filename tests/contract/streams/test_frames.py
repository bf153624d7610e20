"""One suite of the rules of frames, who may write what and when, on every store: Redis, the embedded Valkey, memory."""

import asyncio
import secrets
from collections.abc import AsyncIterator
from itertools import pairwise

import pytest
from tests.contract.streams.operations import (
    MESSAGE,
    RESULT,
    REWIND,
    REWIND_ALL,
    SID,
    NewStore,
    Store,
    append,
    close,
    numbered,
    one,
    opened,
    reset,
    texts,
)
from tests.redis_servers import sweep

from runyard.frames import Frame, Payload, event_payload, text_payload
from runyard.streams.connect import connect
from runyard.streams.memory import MemoryFrames
from runyard.streams.ops import Answer, Append, Close, Status, Touch
from runyard.streams.reader import StreamInfo, StreamState
from runyard.streams.store import FrameStore

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module", params=["redis-asyncio", "valkey-uvloop", "memory"])
def surroundings(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def server_url(surroundings: str, request: pytest.FixtureRequest) -> str | None:
    return None if surroundings == "memory" else request.getfixturevalue("redis_url")


@pytest.fixture
async def new_store(server_url: str | None) -> AsyncIterator[NewStore]:
    if server_url is None:
        yield MemoryFrames
        return
    client, prefix = connect(server_url), f"test-{secrets.token_hex(6)}"

    def new(*, max_bytes: int = 4_194_304, max_streams: int = 1000) -> FrameStore:
        return FrameStore(client, prefix=prefix, retain_s=60, max_bytes=max_bytes, max_streams=max_streams)

    yield new
    await sweep(client, prefix)
    await client.aclose()


@pytest.fixture
def store(new_store: NewStore) -> Store:
    return new_store()


# Open and append ----------------------------------------------------------------------------------------------------


async def test_a_new_stream_is_opened_and_written_in_one_call(store: Store) -> None:
    answers = await store.apply([opened(), append(1, "a", "b")])
    assert answers == [Answer(Status.OK, 0, created=True), Answer(Status.OK, 2)]
    assert await store.read(SID, 0) == numbered(1, *texts("a", "b"))
    assert await store.info(SID) == StreamInfo(StreamState.LIVE, first=1, last=2, base=0, generation=1)


async def test_payloads_come_back_as_they_went_in(store: Store) -> None:
    payloads = [
        Payload(None, b""),
        text_payload(" \n\n\N{LINE SEPARATOR}é\N{SNOWMAN}"),
        text_payload("a\rb"),
        event_payload("tool", {"name": "x"}),
        Payload("thinking", b"hm\nhm"),
    ]
    await store.apply([opened(), Append(stream_id=SID, generation=1, first=1, frames=payloads)])
    assert await store.read(SID, 0) == numbered(1, *payloads)


async def test_an_empty_stream_has_no_frame_and_can_be_read_from_its_start(store: Store) -> None:
    await one(store, opened())
    info = await store.info(SID)
    assert info == StreamInfo(StreamState.LIVE, first=1, last=0, base=0, generation=1)
    assert not info.has_lost(0)
    assert await store.read(SID, 0) == []


async def test_an_unknown_stream_has_no_info(store: Store) -> None:
    assert await store.info("st_none") is None
    assert await store.read("st_none", 0) == []
    assert await store.infos([]) == {}


async def test_opening_again_raises_the_generation_and_never_lowers_it(store: Store) -> None:
    await store.apply([opened(3), append(1, "a", generation=3)])
    assert await one(store, opened(5)) == Answer(Status.OK, 1, created=False)
    assert await one(store, opened(5)) == Answer(Status.OK, 1, created=False)
    assert await one(store, opened(4)) == Answer(Status.FENCED, 1)
    info = await store.info(SID)
    assert info is not None
    assert info.generation == 5


async def test_the_older_generation_is_fenced_off(store: Store) -> None:
    await store.apply([opened(1), append(1, "a"), opened(2)])
    assert await one(store, append(2, "b")) == Answer(Status.FENCED, 1)
    assert await one(store, Touch(stream_id=SID, generation=1)) == Answer(Status.FENCED, 1)
    assert await one(store, reset(1000)) == Answer(Status.FENCED, 1)
    assert await one(store, append(2, "c", generation=2)) == Answer(Status.OK, 2)
    assert await store.read(SID, 0) == numbered(1, *texts("a", "c"))


async def test_a_generation_that_was_never_opened_may_not_write(store: Store) -> None:
    await store.apply([opened(1), append(1, "a")])
    assert await one(store, append(2, "b", generation=2)) == Answer(Status.GAP, 1)


async def test_append_takes_only_the_next_number(store: Store) -> None:
    await store.apply([opened(), append(1, "a", "b")])
    assert await one(store, append(2, "b")) == Answer(Status.GAP, 2)  # sent again: the writer skips
    assert await one(store, append(4, "d")) == Answer(Status.GAP, 2)  # frames were lost
    assert await one(store, append(3, "c")) == Answer(Status.OK, 3)
    assert [frame.data for frame in await store.read(SID, 0)] == [b"a", b"b", b"c"]


async def test_append_to_a_missing_stream_makes_none(store: Store) -> None:
    assert await one(store, append(1, "a")) == Answer(Status.MISSING, 0)
    assert await store.info(SID) is None


async def test_one_call_serves_many_streams_and_answers_each(store: Store) -> None:
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


async def test_interleaved_generations_leave_one_contiguous_stream(store: Store) -> None:
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


async def test_touch_makes_no_stream(store: Store) -> None:
    assert await one(store, Touch(stream_id=SID, generation=1)) == Answer(Status.MISSING, 0)
    assert await store.info(SID) is None


# Close --------------------------------------------------------------------------------------------------------------


async def test_close_writes_the_last_frames_and_the_first_one_wins(store: Store) -> None:
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


async def test_close_withdraws_what_came_after_the_settlement(store: Store) -> None:
    await store.apply([opened(), append(1, "a", "b", "not committed")])
    assert await store.close(close(2)) == Answer(Status.OK, 6)
    assert await store.read(SID, 2) == numbered(3, *texts("not committed"), REWIND, MESSAGE, RESULT)


async def test_close_below_the_settlement_waits_for_a_base(store: Store) -> None:
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


async def test_close_of_a_missing_stream_depends_on_what_was_committed(store: Store) -> None:
    assert await store.close(close(2)) == Answer(Status.BELOW, 0)
    assert await store.info(SID) is None
    assert await store.close(close(2, base=1000)) == Answer(Status.OK, 1003)


async def test_close_of_a_missing_stream_without_committed_frames_makes_it(store: Store) -> None:
    assert await store.close(close(0)) == Answer(Status.OK, 2)
    assert await store.read(SID, 0) == numbered(1, MESSAGE, RESULT)


async def test_close_with_a_base_that_the_stream_has_already_goes_on_from_it(store: Store) -> None:
    await store.apply([opened(), reset(1000, "ab"), append(1002, "c")])
    assert await store.close(close(1002, base=1000)) == Answer(Status.OK, 1004)
    assert await store.read(SID, 0) == numbered(1000, REWIND_ALL, *texts("ab", "c"), MESSAGE, RESULT)


async def test_close_with_a_base_at_or_below_the_last_number_writes_nothing(store: Store) -> None:
    await store.apply([opened(), append(1, "a", "b")])
    assert await store.close(close(5, base=2)) == Answer(Status.BELOW, 2)


async def test_close_in_doubt_resets_whatever_is_kept(store: Store) -> None:
    await store.apply([opened(), append(1, "a", "b", "c")])
    assert await store.close(close(2, base=1000)) == Answer(Status.OK, 1003)
    assert [frame.seq for frame in await store.read(SID, 0)] == [1000, 1001, 1002, 1003]


# Reset --------------------------------------------------------------------------------------------------------------


async def test_reset_drops_what_is_kept_and_goes_on_from_its_base(store: Store) -> None:
    await store.apply([opened(), append(1, "a", "b")])
    assert await store.apply([reset(1000, "ab"), append(1002, "c")]) == [
        Answer(Status.OK, 1001),
        Answer(Status.OK, 1002),
    ]
    assert await store.read(SID, 0) == numbered(1000, REWIND_ALL, *texts("ab", "c"))
    info = await store.info(SID)
    assert info == StreamInfo(StreamState.LIVE, first=1000, last=1002, base=1000, generation=1)


async def test_reset_sent_twice_counts_once(store: Store) -> None:
    await store.apply([opened(), reset(1000, "ab"), append(1002, "c")])
    assert await one(store, reset(1000, "ab")) == Answer(Status.OK, 1002)
    assert [frame.seq for frame in await store.read(SID, 0)] == [1000, 1001, 1002]


async def test_reset_makes_a_missing_stream_and_raises_the_generation(store: Store) -> None:
    assert await one(store, reset(1000, generation=4)) == Answer(Status.OK, 1000)
    assert await one(store, append(1001, "a", generation=4)) == Answer(Status.OK, 1001)
    assert await one(store, reset(2000, generation=5)) == Answer(Status.OK, 2000)
    assert await one(store, append(2001, "a", generation=4)) == Answer(Status.FENCED, 2000)


async def test_reset_needs_a_base_above_what_is_kept(store: Store) -> None:
    await store.apply([opened(), append(1, "a", "b")])
    assert await one(store, reset(2)) == Answer(Status.GAP, 2)


async def test_a_cursor_below_the_base_reads_on_from_it_while_its_rewind_is_kept(new_store: NewStore) -> None:
    small = new_store(max_bytes=400)
    await small.apply([opened(), append(1, "a", "b"), reset(1000, "ab")])
    info = await small.info(SID)
    assert info is not None
    assert [info.has_lost(cursor) for cursor in (0, 2, 999, 1000, 1001)] == [False] * 5
    await small.apply([append(1002, "c", "d")])  # the rewind is dropped: 4 frames are over the budget
    info = await small.info(SID)
    assert info is not None
    assert info.first > 1000
    assert info.has_lost(0)
    assert info.has_lost(999)
    assert not info.has_lost(info.first - 1)


# Budget -------------------------------------------------------------------------------------------------------------


async def test_a_budget_of_one_frame_keeps_the_newest(new_store: NewStore) -> None:
    small = new_store(max_bytes=100)
    await small.apply([opened()])
    for seq in range(1, 11):
        assert await one(small, append(seq, "x" * 30)) == Answer(Status.OK, seq)
    info = await small.info(SID)
    assert info == StreamInfo(StreamState.LIVE, first=10, last=10, base=0, generation=1)
    assert info.has_lost(0)
    assert info.has_lost(8)
    assert not info.has_lost(9)
    assert [frame.seq for frame in await small.read(SID, 9)] == [10]


async def test_a_frame_over_the_budget_survives_alone(new_store: NewStore) -> None:
    small = new_store(max_bytes=1000)
    await small.apply([opened(), append(1, "a", "b", "x" * 5000)])
    assert [frame.seq for frame in await small.read(SID, 0)] == [3]
    await small.apply([append(4, "c")])
    assert [frame.seq for frame in await small.read(SID, 0)] == [4]


async def test_a_close_over_the_budget_keeps_its_terminal_frame(new_store: NewStore) -> None:
    small = new_store(max_bytes=100)
    await small.apply([opened(), append(1, "a", "b")])
    await small.close(close(2))
    assert await small.read(SID, 0) == numbered(4, RESULT)


@pytest.mark.parametrize("batch", [1, 7, 200, 1000])
async def test_a_long_stream_keeps_its_newest_frames_whole(new_store: NewStore, batch: int) -> None:
    small = new_store(max_bytes=200 * 100)
    await small.apply([opened()])
    for first in range(1, 1001, batch):
        numbers = range(first, min(first + batch, 1001))
        await small.apply([append(first, *(f"{number:04}" for number in numbers))])
    info = await small.info(SID)
    assert info is not None
    assert (info.first, info.last) == (801, 1000)
    frames = await small.read(SID, 800)
    assert [(frame.seq, frame.data) for frame in frames] == [(seq, b"%04d" % seq) for seq in range(801, 1001)]


async def test_the_budget_counts_event_data_and_overhead(new_store: NewStore) -> None:
    kept = new_store(max_bytes=307)
    tick = Payload("tick", b"1")
    await kept.apply([opened(), append(1, "x" * 10), Append(stream_id=SID, generation=1, first=2, frames=[tick])])
    await kept.apply([append(3, "x" * 4)])  # 307: still within
    assert [frame.seq for frame in await kept.read(SID, 0)] == [1, 2, 3]
    await kept.apply([append(4, "y")])
    assert [frame.seq for frame in await kept.read(SID, 0)] == [2, 3, 4]


async def test_finished_streams_beyond_the_limit_go_oldest_first(new_store: NewStore) -> None:
    few = new_store(max_streams=2)
    await few.apply([opened(stream_id="st_live"), append(1, "a", stream_id="st_live")])
    for number in range(4):
        await few.close(Close(stream_id=f"st_{number}", settled_last=0, frames=[RESULT]))
        await asyncio.sleep(0.003)  # their order is that of Redis' clock, in milliseconds
    assert set(await few.infos([f"st_{number}" for number in range(4)] + ["st_live"])) == {"st_2", "st_3", "st_live"}


async def test_a_forgotten_stream_is_gone_and_may_begin_again(store: Store) -> None:
    await store.apply([opened(3), append(1, "a", generation=3)])
    await store.close(close(1))
    await store.forget([SID, "st_none"])
    assert await store.info(SID) is None
    assert await one(store, opened(1)) == Answer(Status.OK, 0, created=True)


async def test_the_server_is_told_by_a_name_that_stays(store: Store) -> None:
    assert await store.server_run_id() == await store.server_run_id() != ""


# Reading ------------------------------------------------------------------------------------------------------------


async def test_pages_join_without_a_hole_from_every_cursor(store: Store) -> None:
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
