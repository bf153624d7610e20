"""The worker's flusher: what leaves in which call, and what a writer tells when Redis is away, behind or taken."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import hypothesis
import pytest
from hypothesis import strategies as st
from tests.fakes.faulty_frames import FaultyFrames

from runyard.frames import Payload, event_payload, text_payload
from runyard.streams import connect
from runyard.streams.memory import StoredStream
from runyard.streams.ops import Answer, Append, Open, Reset, Status, Touch
from runyard_workers import flusher as flusher_module
from runyard_workers.flusher import Flusher
from runyard_workers.stream_writer import StreamWriter, WriterState

pytestmark = pytest.mark.anyio

GUARD_S = 30.0
SID = "st_1"
REWIND_ALL = event_payload("rewind", {"toSeq": 0, "length": 0})


@pytest.fixture(autouse=True)
def prompt_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connect, "BACKOFF_FIRST_S", 0.001)
    monkeypatch.setattr(connect, "BACKOFF_LONGEST_S", 0.002)


@contextlib.asynccontextmanager
async def running(flusher: Flusher) -> AsyncIterator[None]:
    task = asyncio.create_task(flusher.run())
    try:
        async with asyncio.timeout(GUARD_S):
            yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


@pytest.fixture
async def store() -> FaultyFrames:
    return FaultyFrames()


@pytest.fixture
async def flusher(store: FaultyFrames) -> AsyncIterator[Flusher]:
    flusher = Flusher(store)
    async with running(flusher):
        yield flusher


def text(word: str) -> Payload:
    return text_payload(word)


async def test_the_first_frames_need_no_round_trip_of_their_own(flusher: Flusher, store: FaultyFrames) -> None:
    writer = flusher.open(SID, 1)
    assert [writer.write(text("a")), writer.write(text("b"))] == [1, 2]
    assert await writer.flush()
    assert store.calls == [
        [
            Open(stream_id=SID, generation=1),
            Append(stream_id=SID, generation=1, first=1, frames=[text("a"), text("b")]),
        ]
    ]
    assert (writer.last, writer.acked, writer.unsent_bytes) == (2, 2, 0)


async def test_what_is_written_while_a_call_is_in_flight_leaves_in_one_call(
    flusher: Flusher, store: FaultyFrames
) -> None:
    one, two = flusher.open("st_1", 1), flusher.open("st_2", 5)
    one.write(text("a"))
    two.write(text("A"))
    store.gate.clear()
    await store.next_call()
    for word in "bcd":
        one.write(text(word))
        two.write(text(word.upper()))
    assert len(store.calls) == 1
    store.gate.set()
    assert await one.flush()
    assert await two.flush()
    assert store.calls[1:] == [
        [
            Append(stream_id="st_1", generation=1, first=2, frames=[text("b"), text("c"), text("d")]),
            Append(stream_id="st_2", generation=5, first=2, frames=[text("B"), text("C"), text("D")]),
        ]
    ]


async def test_a_large_backlog_leaves_in_pieces_and_others_take_turns(
    flusher: Flusher, store: FaultyFrames, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flusher_module, "CALL_BYTES", 250)
    large, small = flusher.open("st_large", 1), flusher.open("st_small", 1)
    for _ in range(10):
        large.write(text("x" * 4))  # 100 bytes each, with the overhead
    small.write(text("y"))
    assert await small.flush()
    assert await large.flush()
    assert [seq for seq, _ in store.texts("st_large")] == list(range(1, 11))
    sent = [[(op.stream_id, len(op.frames)) for op in call if isinstance(op, Append)] for call in store.calls]
    assert sent == [
        [("st_large", 3)],
        [("st_small", 1), ("st_large", 2)],
        [("st_large", 3)],
        [("st_large", 2)],
    ]


async def test_a_taken_over_stream_goes_on_from_its_last_number(flusher: Flusher, store: FaultyFrames) -> None:
    store.streams[SID] = StoredStream(generation=1)
    store.streams[SID].add([text("a"), text("b")])
    writer = flusher.open(SID, 2)
    assert await writer.opened() == 2
    assert writer.write(text("c")) == 3
    assert await writer.flush()
    assert store.texts(SID) == [(1, b"a"), (2, b"b"), (3, b"c")]


async def test_opening_without_an_answer_leaves_the_stream_in_doubt(flusher: Flusher, store: FaultyFrames) -> None:
    store.away = True
    writer = flusher.open(SID, 2)
    assert await writer.opened(timeout_s=0.01) == 0
    assert writer.broken
    writer.reset(1000, [REWIND_ALL, text("ab")])
    store.away = False
    assert await writer.flush()
    assert store.texts(SID) == [(1000, REWIND_ALL.data), (1001, b"ab")]


async def test_a_stream_with_frames_that_was_written_as_a_new_one_is_broken(
    flusher: Flusher, store: FaultyFrames
) -> None:
    store.streams[SID] = StoredStream(generation=1)
    store.streams[SID].add([text("a")])
    writer = flusher.open(SID, 2)
    writer.write(text("x"))
    assert not await writer.flush()
    assert writer.broken
    assert store.texts(SID) == [(1, b"a")]


async def test_when_nobody_has_anything_to_send_any_more_it_knows_of_no_outage(
    flusher: Flusher, store: FaultyFrames
) -> None:
    """A worker without a run would show `runyard_redis_away` until its next one."""
    writer = flusher.open(SID, 1)
    store.away = True
    writer.write(text("a"))
    await store.next_call()
    await store.next_call()
    assert flusher.is_away
    writer.release()
    while flusher.is_away:  # noqa: ASYNC110 (it sets no event)
        await asyncio.sleep(0)
    assert flusher.away_s == 0


async def test_it_tells_for_how_long_redis_is_away(flusher: Flusher, store: FaultyFrames) -> None:
    writer = flusher.open(SID, 1)
    writer.write(text("a"))
    assert await writer.flush()
    assert flusher.away_s == 0
    store.away = True
    writer.write(text("b"))
    await store.next_call()
    await store.next_call()
    first = flusher.away_s
    await store.next_call()
    assert 0 < first < flusher.away_s
    store.away = False
    assert await writer.flush()
    assert flusher.away_s == 0


async def test_frames_wait_for_redis_and_arrive_once(flusher: Flusher, store: FaultyFrames) -> None:
    writer = flusher.open(SID, 1)
    writer.write(text("a"))
    store.away = True
    await store.next_call()
    await store.next_call()
    writer.write(text("b"))
    assert not await writer.flush(timeout_s=0.01)
    assert (writer.state, writer.acked) == (WriterState.LIVE, 0)
    store.away = False
    assert await writer.flush()
    assert store.texts(SID) == [(1, b"a"), (2, b"b")]


async def test_frames_whose_answer_was_lost_are_not_sent_again(flusher: Flusher, store: FaultyFrames) -> None:
    writer = flusher.open(SID, 1)
    writer.write(text("a"))
    store.answers_to_lose = 1
    await store.next_call()
    writer.write(text("b"))
    assert await writer.flush()
    writer.write(text("c"))
    store.answers_to_lose = 2
    assert await writer.flush()
    assert store.texts(SID) == [(1, b"a"), (2, b"b"), (3, b"c")]


async def test_the_writer_of_an_older_generation_is_lost(flusher: Flusher, store: FaultyFrames) -> None:
    writer = flusher.open(SID, 1)
    writer.write(text("a"))
    assert await writer.flush()
    store.streams[SID].generation = 2
    writer.write(text("b"))
    assert not await writer.flush()
    assert writer.state is WriterState.LOST
    assert writer.write(text("c")) == 3
    writer.reset(1000, [REWIND_ALL])
    assert not await writer.flush()
    assert (writer.state, writer.unsent_bytes) == (WriterState.LOST, 0)
    assert store.texts(SID) == [(1, b"a")]


async def test_opening_under_an_older_generation_is_lost(flusher: Flusher, store: FaultyFrames) -> None:
    store.streams[SID] = StoredStream(generation=7)
    writer = flusher.open(SID, 6)
    assert await writer.opened() == 0
    assert writer.state is WriterState.LOST


async def test_the_writer_of_a_closed_stream_drops_its_frames(flusher: Flusher, store: FaultyFrames) -> None:
    writer = flusher.open(SID, 1)
    writer.write(text("a"))
    assert await writer.flush()
    store.streams[SID].is_closed = True
    writer.write(text("b"))
    assert not await writer.flush()
    assert writer.state is WriterState.CLOSED


async def test_lost_frames_break_the_writer_until_a_reset(flusher: Flusher, store: FaultyFrames) -> None:
    writer = flusher.open(SID, 1)
    for word in "abc":
        writer.write(text(word))
    assert await writer.flush()
    store.lose(SID, last=1)
    writer.write(text("d"))
    assert not await writer.flush()
    assert writer.broken
    assert writer.write(text("dropped")) == 5
    assert writer.last == 5  # readers may have seen that many: the base lies above it
    writer.reset(1005, [REWIND_ALL, text("abcd")])
    assert writer.write(text("e")) == 1007
    assert await writer.flush()
    assert store.texts(SID) == [(1005, REWIND_ALL.data), (1006, b"abcd"), (1007, b"e")]
    assert (writer.state, writer.acked) == (WriterState.LIVE, 1007)


async def test_a_stream_that_is_gone_breaks_the_writer(flusher: Flusher, store: FaultyFrames) -> None:
    writer = flusher.open(SID, 1)
    writer.write(text("a"))
    assert await writer.flush()
    del store.streams[SID]
    writer.write(text("b"))
    assert not await writer.flush()
    assert writer.broken
    assert SID not in store.streams  # only a reset, whose base is committed, makes it again


async def test_a_reset_whose_answer_was_lost_counts_once(flusher: Flusher, store: FaultyFrames) -> None:
    writer = flusher.open(SID, 1)
    writer.write(text("a"))
    assert await writer.flush()
    store.answers_to_lose = 1
    writer.reset(1000, [REWIND_ALL, text("a")])
    writer.write(text("b"))
    assert await writer.flush()
    assert [type(op) for call in store.calls[1:] for op in call] == [Reset, Append] * 2
    assert store.texts(SID) == [(1000, REWIND_ALL.data), (1001, b"a"), (1002, b"b")]


async def test_an_answer_from_before_a_reset_says_nothing_about_it(flusher: Flusher, store: FaultyFrames) -> None:
    writer = flusher.open(SID, 1)
    writer.write(text("a"))
    assert await writer.flush()
    store.gate.clear()
    writer.write(text("b"))
    await store.next_call()
    del store.streams[SID]  # the append in flight will be told so
    writer.reset(1000, [REWIND_ALL, text("a")])
    store.gate.set()
    assert await writer.flush()
    assert writer.state is WriterState.LIVE
    assert store.texts(SID) == [(1000, REWIND_ALL.data), (1001, b"a")]


async def test_beyond_the_buffer_the_largest_stream_loses_its_frames(
    flusher: Flusher, store: FaultyFrames, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flusher_module, "BUFFER_MAX_BYTES", 1000)
    large, small = flusher.open("st_large", 1), flusher.open("st_small", 1)
    store.away = True
    small.write(text("x" * 4))
    for _ in range(9):
        large.write(text("x" * 4))
    assert (large.state, small.state) == (WriterState.LIVE, WriterState.LIVE)
    large.write(text("x" * 4))  # 1,100 bytes
    assert (large.state, small.state) == (WriterState.BROKEN, WriterState.LIVE)
    assert (large.unsent_bytes, large.last) == (0, 10)
    store.away = False
    assert await small.flush()
    assert "st_large" not in store.streams


async def test_live_streams_are_touched_and_others_are_not() -> None:
    store = FaultyFrames(retain_s=0.04)
    flusher = Flusher(store)
    async with running(flusher):
        writer, gone = flusher.open("st_live", 1), flusher.open("st_gone", 1)
        assert await writer.opened() == 0
        assert await gone.opened() == 0
        gone.release()
        touched: list[str] = []
        while len(touched) < 2:
            touched += [op.stream_id for op in await store.next_call() if isinstance(op, Touch)]
        assert touched == ["st_live"] * 2
        assert writer.state is WriterState.LIVE


async def test_a_touch_that_finds_no_stream_breaks_the_writer() -> None:
    writer = StreamWriter(
        SID, 1, max_bytes=4_194_304, on_bytes=lambda _writer, _delta: None, on_release=lambda _writer: None
    )
    writer.settle(writer.parcel(1000), [Answer(Status.OK, 0, created=True)])
    assert not writer.has_work
    writer.touch()
    parcel = writer.parcel(1000)
    assert parcel.ops == [Touch(stream_id=SID, generation=1)]
    writer.settle(parcel, [Answer(Status.MISSING, 0)])
    assert writer.broken


async def test_a_released_writer_sends_nothing_more(flusher: Flusher, store: FaultyFrames) -> None:
    writer = flusher.open(SID, 1)
    writer.write(text("a"))
    writer.release()
    assert writer.write(text("b")) == 2
    assert not await writer.flush()
    other = flusher.open("st_2", 1)
    assert await other.opened() == 0
    assert set(store.streams) == {"st_2"}


async def test_a_flush_that_nobody_waits_for_any_more_does_no_harm(flusher: Flusher, store: FaultyFrames) -> None:
    writer = flusher.open(SID, 1)
    store.gate.clear()
    writer.write(text("a"))
    waiting = asyncio.create_task(writer.flush())
    await store.next_call()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    store.gate.set()
    writer.write(text("b"))
    assert await writer.flush()


@hypothesis.given(
    st.lists(st.sampled_from(["write", "write", "turn", "away", "back", "lose"]), max_size=60),
)
@hypothesis.settings(max_examples=60)
def test_whatever_redis_does_the_stream_is_what_was_written(actions: list[str]) -> None:
    async def scenario() -> None:
        store = FaultyFrames()
        flusher = Flusher(store)
        async with running(flusher):
            writer = flusher.open(SID, 1)
            written: list[tuple[int, bytes]] = []
            for number, action in enumerate(actions):
                match action:
                    case "write":
                        seq = writer.write(text(str(number)))
                        written.append((seq, str(number).encode()))
                    case "turn":
                        await asyncio.sleep(0)
                    case "lose":
                        store.answers_to_lose = 2
                    case _:
                        store.away = action == "away"
            store.away = False
            assert await writer.flush(GUARD_S)
            assert await writer.opened() == len(written)
            assert store.texts(SID) == written

    asyncio.run(scenario())
