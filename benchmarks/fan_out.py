"""One gateway process and its readers: the cost of a frame, its delay, and the memory of a reader."""

import asyncio
import random
import statistics
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from benchmarks.audience import Audience, Reader, listening
from benchmarks.authors import Author, Raw, raw_server
from benchmarks.processes import Process
from benchmarks.report import Figure, Floor, Section
from benchmarks.samples import percentile
from benchmarks.stacks import postgres_redis
from benchmarks.system import System, running
from benchmarks.targets import DELAY, FAN_OUT, GROWTH, READER_MEMORY
from runyard.streams.connect import connect
from runyard.streams.store import FrameStore

BATCH = 10
"""Frames that a worker under load appends at once."""

DELIVERIES = 400_000
"""To all readers together, for each figure: CPU time is counted in steps of 10 ms."""

BATCHES_MAX = 4000
READERS = (1, 100, 1000)
WATCHED = 1000
FEW, MANY = 100, 5000
SAMPLES = 500
ROUNDS, ROUNDS_QUICK = 3, 1
SETTLE_S = 1.0

Publish = Callable[[int], Awaitable[None]]


async def measure(*, quick: bool) -> Section:
    rounds = ROUNDS_QUICK if quick else ROUNDS
    with postgres_redis() as stack:
        client = connect(stack.redis_url)
        store = FrameStore(client, prefix=stack.prefix, retain_s=3600, max_bytes=1 << 20, max_streams=100_000)
        author = Author(store=store)
        async with running(stack) as system, raw_server() as raw:
            await author.begin(system, WATCHED)
            figures = [await _fan_out(system, raw, author, readers, rounds) for readers in READERS]
            figures += await _delay(system, author)
            await author.begin(system, MANY - WATCHED)
            figures += await _many_streams(system, author)
            figures.append(await _many_readers(system, raw, author))
        await client.aclose()
    return Section(name="fan-out", title="The readers of one gateway process, Postgres + Redis", figures=figures)


async def _fan_out(system: System, raw: Raw, author: Author, readers: int, rounds: int) -> Figure:
    """The next batch follows when everybody has the one before."""
    stream_id = author.stream_ids[0]
    batches = min(DELIVERIES // (BATCH * readers), BATCHES_MAX)
    ours_s, floor_s = [], []
    for _ in range(rounds):
        async with listening(raw.url, ["/"] * readers) as audience:
            floor_s.append(await _frame_s(raw.process, audience, batches, raw.write))
        async with listening(system.gateway_url, [_tail(author, stream_id)] * readers) as audience:
            ours_s.append(
                await _frame_s(system.gateway, audience, batches, lambda count: author.append([stream_id], count))
            )
    return Figure(
        name=f"frames delivered per second of its CPU, {readers:,} reader{'s' * (readers > 1)}",
        value=1 / statistics.mean(ours_s),
        unit="/s",
        floor=Floor(what="raw asyncio transports, the same bytes", value=1 / statistics.mean(floor_s)),
        targets=FAN_OUT if readers > 1 else (),
        note=f"batches of {BATCH}",
    )


async def _frame_s(process: Process, audience: Audience, batches: int, publish: Publish) -> float:
    """CPU time of the process for each frame that reaches a reader."""
    began_s = process.cpu_s()
    for _ in range(batches):
        audience.expect(audience.readers, BATCH)
        await publish(BATCH)
        await audience.have_it()
    return (process.cpu_s() - began_s) / (batches * BATCH * len(audience.readers))


async def _delay(system: System, author: Author) -> list[Figure]:
    stream_ids = author.stream_ids[:WATCHED]
    delays_s, answers_s = [], []
    rng = random.Random(1)
    async with listening(system.gateway_url, [_tail(author, each) for each in stream_ids]) as audience:
        for _ in range(SAMPLES):
            number = rng.randrange(len(stream_ids))
            audience.expect([audience.readers[number]], 1)
            began_s = time.perf_counter()
            await author.append([stream_ids[number]], 1)
            answers_s.append(time.perf_counter() - began_s)
            await audience.have_it()
            delays_s.append(audience.had_it_s - began_s)
    return [
        Figure(
            name=f"{name} from append to reader, {WATCHED:,} watched streams",
            value=1000 * percentile(delays_s, percent),
            unit="ms",
            floor=Floor(what="the append's own answer from Redis", value=1000 * percentile(answers_s, percent)),
            targets=targets,
            note="nothing else under way",
        )
        for name, percent, targets in (("p50", 50, DELAY), ("p99", 99, ()))
    ]


async def _many_streams(system: System, author: Author) -> list[Figure]:
    """One reader a stream, one frame to each of a hundred streams at a time."""
    stream_ids = author.stream_ids
    paths = [_tail(author, each) for each in stream_ids]
    async with listening(system.gateway_url, paths[:FEW]) as audience:
        few_s = await _frame_s_of_streams(system.gateway, audience, author, stream_ids[:FEW])
        before_kb = _resident_kb(system.gateway)
        async with listening(system.gateway_url, paths[FEW:]) as more:
            await asyncio.sleep(SETTLE_S)  # until the last of them are subscribed
            reader_kb = (_resident_kb(system.gateway) - before_kb) / (MANY - FEW)
            many_s = await _frame_s_of_streams(system.gateway, more, author, stream_ids[FEW:])
    return [
        Figure(
            name="memory a reader, each of a stream of its own",
            value=reader_kb,
            unit="KB",
            targets=READER_MEMORY,
            note=f"from {FEW} to {MANY:,} readers",
        ),
        Figure(
            name=f"CPU per frame, {MANY:,} watched streams",
            value=1e6 * many_s,
            unit="us",
            floor=Floor(what=f"{FEW} watched streams", value=1e6 * few_s),
            targets=GROWTH,
        ),
    ]


async def _frame_s_of_streams(process: Process, audience: Audience, author: Author, stream_ids: Sequence[str]) -> float:
    frames, began_s = 0, process.cpu_s()
    while frames < DELIVERIES // 20:
        at = frames % len(stream_ids)
        some: Sequence[Reader] = audience.readers[at : at + FEW]
        audience.expect(some, 1)
        await author.append(stream_ids[at : at + FEW], 1)
        await audience.have_it()
        frames += len(some)
    return (process.cpu_s() - began_s) / frames


async def _many_readers(system: System, raw: Raw, author: Author) -> Figure:
    """All of one stream. Sockets cost more each where there are many: so do those of the floor."""
    stream_id = author.stream_ids[0]
    frame_s, raw_s = [], []
    for readers in (FEW, MANY):
        batches = DELIVERIES // (BATCH * readers)
        async with listening(raw.url, ["/"] * readers) as audience:
            raw_s.append(await _frame_s(raw.process, audience, batches, raw.write))
        async with listening(system.gateway_url, [_tail(author, stream_id)] * readers) as audience:
            frame_s.append(
                await _frame_s(system.gateway, audience, batches, lambda count: author.append([stream_id], count))
            )
    few_s, many_s = frame_s
    return Figure(
        name=f"CPU per frame and reader, {MANY:,} readers of one stream",
        value=1e6 * many_s,
        unit="us",
        floor=Floor(what=f"{FEW} readers of it", value=1e6 * few_s),
        targets=GROWTH,
        note=f"batches of {BATCH}; raw transports take {raw_s[1] / raw_s[0]:.1f} times as much",
    )


def _tail(author: Author, stream_id: str) -> str:
    return f"/v1/streams/{stream_id}?since={author.lasts[stream_id]}"


def _resident_kb(process: Process) -> int:
    """Of its memory, see proc(5)."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    (line,) = [line for line in status.splitlines() if line.startswith("VmRSS:")]
    return int(line.split()[1])
