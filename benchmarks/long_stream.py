"""One answer of 5,000 deltas as fast as it comes, and its replay."""

import secrets

from redis.asyncio import Redis

from benchmarks.floors.ingest import Ingest, ingest
from benchmarks.floors.replay import read_stream
from benchmarks.report import Figure, Floor, Section
from benchmarks.samples import median
from benchmarks.stacks import postgres_redis
from benchmarks.system import STREAM, System, frames_of, run, running
from benchmarks.targets import CPU_PER_FRAME, LONG_STREAM, REPLAY, RESUME
from benchmarks.wire import RUNYARD_TEXT, Connection
from runyard.streams.connect import connect
from runyard.streams.store import FrameStore

DELTAS = 5_000
DIRECTIVE = f"standin[deltas={DELTAS}]"
ROUNDS, ROUNDS_QUICK = 10, 4
MISSED = 10


async def measure(*, quick: bool) -> Section:
    with postgres_redis() as stack:
        client = connect(stack.redis_url)
        store = FrameStore(client, prefix=stack.prefix, retain_s=600, max_bytes=1 << 22, max_streams=1000)
        async with running(stack) as system:
            figures = await _figures(system, client, store, ROUNDS_QUICK if quick else ROUNDS)
        await client.aclose()
    return Section(name="long-stream", title=f"One answer of {DELTAS:,} deltas, Postgres + Redis", figures=figures)


async def _figures(system: System, client: Redis, store: FrameStore, rounds: int) -> list[Figure]:
    caller, model_caller = await system.caller(), await system.model_caller()
    floors: list[Ingest] = []
    walls_s: list[float] = []
    gateway_s: list[float] = []
    worker_s: list[float] = []
    replays_s: list[float] = []
    resumes_s: list[float] = []
    pages_s: list[float] = []
    for _ in range(rounds):
        floors.append(await ingest(model_caller, store, f"st_{secrets.token_hex(20)}", DIRECTIVE))
        before = system.cpu_s()
        answer = await run(caller, DIRECTIVE)
        after = system.cpu_s()
        walls_s.append(answer.total_s / frames_of(answer))
        gateway_s.append((after[0] - before[0]) / frames_of(answer))
        worker_s.append((after[1] - before[1]) / frames_of(answer))
        stream_id, last = answer.headers["x-stream-id"], frames_of(answer)
        assert last > DELTAS
        pages_s.append(await _pages(client, store, stream_id, last))
        replays_s.append(await _replay(caller, stream_id, 0, last))
        resumes_s.append(await _replay(caller, stream_id, last - MISSED, MISSED))
    floor_us = 1e6 * sum(floor.cpu_s for floor in floors) / sum(floor.frames for floor in floors)
    return [
        Figure(
            name="frames per second, from POST to the terminal frame",
            value=1 / median(walls_s),
            unit="/s",
            floor=Floor(
                what="raw-socket ingest, scripted append",
                value=median([floor.frames / floor.wall_s for floor in floors]),
            ),
            targets=LONG_STREAM,
        ),
        Figure(
            name="worker CPU per frame",
            value=1e6 * sum(worker_s) / rounds,
            unit="us",
            floor=Floor(what="raw-socket ingest, scripted append", value=floor_us),
            targets=CPU_PER_FRAME,
        ),
        Figure(name="gateway CPU per frame", value=1e6 * sum(gateway_s) / rounds, unit="us"),
        Figure(
            name="replay of it over HTTP",
            value=1000 * median(replays_s),
            unit="ms",
            floor=Floor(what="XRANGE in pages of 500", value=1000 * median(pages_s)),
            targets=REPLAY,
        ),
        Figure(
            name=f"a resume that misses {MISSED} frames",
            value=1000 * median(resumes_s),
            unit="ms",
            floor=Floor(what="the full replay", value=1000 * median(replays_s)),
            targets=RESUME,
        ),
    ]


async def _replay(caller: Connection, stream_id: str, since: int, expected: int) -> float:
    answer = await caller.get(
        f"/v1/streams/{stream_id}", text=RUNYARD_TEXT, headers=f"{STREAM}last-event-id: {since}\r\n"
    )
    assert frames_of(answer) == expected, (answer.status, frames_of(answer))
    return answer.total_s


async def _pages(client: Redis, store: FrameStore, stream_id: str, expected: int) -> float:
    count, wall_s = await read_stream(client, store.keys, stream_id)
    assert count == expected
    return wall_s
