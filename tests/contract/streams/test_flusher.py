"""The worker's flusher on a real Redis and on the embedded Valkey, with its connections cut in mid-call."""

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest
from redis.asyncio import Redis
from tests.redis_servers import sweep

from runyard.frames import Frame, event_payload, text_payload
from runyard.streams.connect import connect
from runyard.streams.ops import Close, Open
from runyard.streams.store import FrameStore
from runyard_workers.flusher import Flusher
from runyard_workers.stream_writer import WriterState

pytestmark = pytest.mark.anyio

GUARD_S = 30.0
SID = "st_1"
REWIND_ALL = event_payload("rewind", {"toSeq": 0, "length": 0})


@dataclass(kw_only=True)
class Worker:
    flusher: Flusher
    store: FrameStore
    admin: Redis

    async def cut(self) -> None:
        """End the worker's connections, whatever they carry."""
        for one in await self.admin.client_list():
            if one["name"] == self.store.keys.prefix:
                await self.admin.client_kill_filter(_id=one["id"])

    async def stored(self, stream_id: str) -> list[Frame]:
        frames: list[Frame] = []
        while page := await self.store.read(stream_id, frames[-1].seq if frames else 0):
            frames += page
        return frames


@pytest.fixture
async def worker(redis_url: str) -> AsyncIterator[Worker]:
    client, admin = connect(redis_url), connect(redis_url)
    prefix = f"test-{secrets.token_hex(6)}"
    client.connection_pool.connection_kwargs["client_name"] = prefix
    limits = {"retain_s": 60, "max_bytes": 4_194_304, "max_streams": 1000}
    flusher = Flusher(FrameStore(client, prefix=prefix, **limits))
    running = asyncio.create_task(flusher.run())
    yield Worker(flusher=flusher, store=FrameStore(admin, prefix=prefix, **limits), admin=admin)
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running
    await sweep(admin, prefix)
    await client.aclose()
    await admin.aclose()


async def test_every_frame_arrives_once_though_connections_are_cut(worker: Worker) -> None:
    writers = {f"st_{number}": worker.flusher.open(f"st_{number}", 1) for number in range(8)}
    for round_number in range(40):
        for stream_id, writer in writers.items():
            writer.write(text_payload(f"{stream_id} {round_number}"))
        if round_number % 4 == 0:
            await worker.cut()
        if round_number % 15 == 0:
            await worker.admin.script_flush()
        await asyncio.sleep(0)
    for stream_id, writer in writers.items():
        assert await writer.flush(GUARD_S)
        assert writer.state is WriterState.LIVE
        assert await worker.stored(stream_id) == [
            Frame(number + 1, None, f"{stream_id} {number}".encode()) for number in range(40)
        ]


async def test_a_large_backlog_arrives_whole(worker: Worker) -> None:
    writer = worker.flusher.open(SID, 1)
    for _ in range(5000):
        writer.write(text_payload("x" * 500))
    assert await writer.flush(GUARD_S)
    assert [frame.seq for frame in await worker.stored(SID)] == list(range(1, 5001))


async def test_a_take_over_goes_on_and_the_former_owner_is_lost(worker: Worker) -> None:
    former = worker.flusher.open(SID, 1)
    former.write(text_payload("a"))
    assert await former.flush(GUARD_S)
    owner = worker.flusher.open(SID, 2)
    assert await owner.opened(GUARD_S) == 1
    former.write(text_payload("late"))
    owner.write(text_payload("b"))
    assert await owner.flush(GUARD_S)
    assert not await former.flush(GUARD_S)
    assert former.state is WriterState.LOST
    assert await worker.stored(SID) == [Frame(1, None, b"a"), Frame(2, None, b"b")]


async def test_a_stream_that_redis_forgot_is_reset(worker: Worker) -> None:
    writer = worker.flusher.open(SID, 1)
    writer.write(text_payload("a"))
    assert await writer.flush(GUARD_S)
    await worker.admin.delete(worker.store.keys.frames(SID), worker.store.keys.meta(SID))
    writer.write(text_payload("b"))
    assert not await writer.flush(GUARD_S)
    assert writer.broken
    writer.reset(1_000_002, [REWIND_ALL, text_payload("ab")])
    assert await writer.flush(GUARD_S)
    assert await worker.stored(SID) == [Frame(1_000_002, *REWIND_ALL), Frame(1_000_003, None, b"ab")]


async def test_a_close_ends_the_writer(worker: Worker) -> None:
    writer = worker.flusher.open(SID, 1)
    writer.write(text_payload("a"))
    assert await writer.flush(GUARD_S)
    await worker.store.close(Close(stream_id=SID, settled_last=1, frames=[event_payload("result", {})]))
    writer.write(text_payload("late"))
    assert not await writer.flush(GUARD_S)
    assert writer.state is WriterState.CLOSED


async def test_a_higher_generation_elsewhere_is_told_at_the_opening(worker: Worker) -> None:
    await worker.store.apply([Open(stream_id=SID, generation=9)])
    writer = worker.flusher.open(SID, 8)
    assert await writer.opened(GUARD_S) == 0
    assert writer.state is WriterState.LOST
