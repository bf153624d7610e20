"""A thousand readers of two hundred live streams while both gateways are replaced: each frame once, and one end."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from tests.clients.answer import is_terminal
from tests.clients.api import Api
from tests.clients.sse import Event, EventStreamParser
from tests.clients.wire import wire
from tests.contract.queue.queue_sides import redis_side
from tests.fault.conftest import Fleet
from tests.fault.gateways import Doors
from tests.integration.processes import eventually
from tests.integration.stack import Gateway, Stack, postgres_and_redis, standing_by
from tests.redis_servers import valkey_server

from runyard.frames import Frame, text_payload
from runyard.streams import connect as connecting
from runyard.streams.connect import CONNECTIONS_MAX, connect
from runyard.streams.ops import Append, Open, Status
from runyard.streams.store import FrameStore

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(300)]

STREAMS = 200
READERS_A_STREAM = 5
GATEWAYS = 2
FRAME_S = 0.5
"""Between two frames of a stream: a model that is in no hurry."""

CROWD_GUARD_S = 150.0
"""All of them come at once: the last one's answer begins when those of all the others have begun."""

LEFT_BEHIND_MAX_KB = 4000
"""What 500 readers of a gateway may leave to the next 500: the allocator's odds and ends, less than 8 KB of each."""


@pytest.fixture(scope="module")
async def fleet(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Fleet]:
    """A worker that serves none of the runs, and no gateway yet. All links to the server of the frames are its own."""
    with (
        postgres_and_redis() as backing,
        valkey_server() as url,
        redis_side(backing.broker_url, backing.prefix) as side,
    ):
        folder = tmp_path_factory.mktemp("many-readers")
        async with standing_by(replace(backing, redis_url=url), folder) as stack, stack.starting_worker():
            yield Fleet(stack=stack, broker=side)


@dataclass(kw_only=True, eq=False)
class Reader:
    """A client that comes back at once, by its cursor, to the other gateway. `ends`: how often its answer ended."""

    number: int
    stream_id: str
    headers: dict[str, str]
    events: list[Event] = field(default_factory=list)
    ends: int = 0

    @property
    def has_ended(self) -> bool:
        return bool(self.events) and is_terminal(self.events[-1])

    async def read(self, doors: Doors) -> None:
        tries = 0
        while not self.has_ended:
            with contextlib.suppress(ConnectionError):  # nobody listens there any more
                await self._read_on(doors.gateways[(self.number + tries) % GATEWAYS])
            tries += 1

    async def _read_on(self, gateway: Gateway) -> None:
        headers = {"Host": "test", **self.headers}
        if self.events:
            headers["Last-Event-ID"] = self.events[-1].last_event_id
        async with wire(gateway.host, gateway.port) as connection:
            await connection.send(f"GET /v1/streams/{self.stream_id} HTTP/1.1", headers)
            try:
                head = await connection.head(guard_s=CROWD_GUARD_S)
            except asyncio.IncompleteReadError:  # the gateway was leaving
                return
            if head.status == 503:
                await asyncio.sleep(int(head.headers["retry-after"]))
                return
            assert head.status == 200, head
            parser = EventStreamParser()
            async for chunk in connection.chunks():
                self.events += [event for event in parser.feed(chunk) if event.id is not None]
            assert parser.at_rest
        self.ends += 1


@dataclass(kw_only=True)
class Writer:
    """Writes all streams at once, as a worker's flusher does that has claimed their runs."""

    store: FrameStore
    stream_ids: Sequence[str]
    written: int = 0
    """Frames of each stream."""

    async def open(self) -> None:
        await self._apply([Open(stream_id=stream_id, generation=1) for stream_id in self.stream_ids])

    async def write(self) -> None:
        """Until cancelled."""
        while True:
            seq = self.written + 1
            await self._apply(
                [
                    Append(stream_id=each, generation=1, first=seq, frames=[text_payload(f"{each} says {seq}\n")])
                    for each in self.stream_ids
                ]
            )
            self.written = seq
            await asyncio.sleep(FRAME_S)

    async def _apply(self, ops: Sequence[Open | Append]) -> None:
        answers = await self.store.apply(ops)
        assert {answer.status for answer in answers} == {Status.OK}

    async def stored(self, stream_id: str) -> list[tuple[int, str, str]]:
        """All frames: number, event, data."""
        frames: list[Frame] = []
        while page := await self.store.read(stream_id, frames[-1].seq if frames else 0):
            frames += page
        return [(frame.seq, frame.event or "", frame.data.decode()) for frame in frames]


@asynccontextmanager
async def writing(stack: Stack, stream_ids: Sequence[str]) -> AsyncIterator[Writer]:
    client = connect(stack.backing.redis_url)
    store = FrameStore(client, prefix=stack.backing.prefix, retain_s=600, max_bytes=10**6, max_streams=1000)
    writer = Writer(store=store, stream_ids=stream_ids)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(connecting, "REPLY_TIMEOUT_S", CROWD_GUARD_S)  # this process is busy with what the readers get
        await writer.open()
        yield writer
    await client.aclose()


async def test_a_thousand_readers_outlive_both_gateways(stack: Stack) -> None:
    async with AsyncExitStack() as exits:
        doors = Doors(stack=stack, exits=exits)
        doors.gateways += await asyncio.gather(*(doors.open() for _ in range(GATEWAYS)))
        users = [doors.gateways[number % GATEWAYS].user() for number in range(STREAMS)]
        runs = [await user.start("unserved") for user in users]  # at once they may wait too long for a link to Postgres
        writer = await exits.enter_async_context(writing(stack, [run["streamId"] for run in runs]))
        links_max = links(stack) + GATEWAYS * CONNECTIONS_MAX

        def readers() -> list[Reader]:
            return [
                Reader(number=number, stream_id=stream_id, headers=user.headers)
                for number, (user, stream_id) in enumerate(
                    READERS_A_STREAM * [*zip(users, writer.stream_ids, strict=True)]
                )
            ]

        async with asyncio.TaskGroup() as tasks:
            work = tasks.create_task(writer.write())
            first = await come(readers(), doors, tasks)
            weights_kb = [memory_kb(gateway) for gateway in doors.gateways]
            for task in first.values():
                task.cancel()
            reading = await come(readers(), doors, tasks)
            for gateway, weight_kb in zip(doors.gateways, weights_kb, strict=True):
                assert memory_kb(gateway) <= weight_kb + LEFT_BEHIND_MAX_KB
            assert links(stack) <= links_max
            for number in range(GATEWAYS):
                await doors.replace(number)
                await have(reading, writer.written + 1)
                assert links(stack) <= links_max
            work.cancel()
            for user, run in zip(users, runs, strict=True):
                await stop(doors.gateways[0], user, run["runId"])
        stored = {stream_id: await writer.stored(stream_id) for stream_id in writer.stream_ids}
        for reader in reading:
            assert [(event.seq, event.type, event.data) for event in reader.events] == stored[reader.stream_id]
            assert [is_terminal(event) for event in reader.events].count(True) == 1
            assert reader.ends >= 2, "it was never moved"
        assert links(stack) <= links_max


async def come(readers: Sequence[Reader], doors: Doors, tasks: asyncio.TaskGroup) -> dict[Reader, asyncio.Task[None]]:
    """All at once; each has a frame when it returns."""
    reading = {reader: tasks.create_task(reader.read(doors)) for reader in readers}
    await have(readers, 1)
    return reading


async def have(readers: Iterable[Reader], count: int) -> None:
    """Once every reader has so many frames."""
    await eventually(
        lambda: all(len(each.events) >= count for each in readers),
        f"frame {count} at every reader",
        guard_s=CROWD_GUARD_S,
    )


async def stop(gateway: Gateway, user: Api, run_id: str) -> None:
    response = await Api(gateway.http, user.headers).post(f"/v1/runs/{run_id}/cancel")
    assert response.status_code == 200, response.text


def links(stack: Stack) -> int:
    """To the server of the frames, of all processes."""
    return len(stack.redis.client_list())


def memory_kb(gateway: Gateway) -> int:
    """Resident, see proc(5)."""
    status = Path(f"/proc/{gateway.process.pid}/status").read_text()
    (line,) = [line for line in status.splitlines() if line.startswith("VmRSS:")]
    return int(line.split()[1])
