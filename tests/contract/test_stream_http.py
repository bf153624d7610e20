"""The hub behind a real HTTP server: readers that come, leave and stall on real sockets."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass

import pytest
import uvicorn
from redis.asyncio import Redis
from starlette.types import Receive, Scope, Send
from tests.clients.sse import Event, EventStreamParser
from tests.redis_servers import valkey_server

from runyard.frames import Payload, event_payload, text_payload
from runyard.streams.connect import CONNECTIONS_MAX, connect
from runyard.streams.ops import Append, Close, Open
from runyard.streams.store import FrameStore
from runyard_gateway.hub import Hub
from runyard_gateway.sse import stream_sse

pytestmark = pytest.mark.anyio

GUARD_S = 60.0
FRAMES = 3000
RESULT = event_payload("result", {"status": "completed"})


class Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield  # pytest's


@dataclass(kw_only=True)
class Served:
    hub: Hub
    store: FrameStore
    address: tuple[str, int]
    client: Redis

    @contextlib.asynccontextmanager
    async def get(self, path: str) -> AsyncIterator["Reader"]:
        reader, writer = await asyncio.open_connection(*self.address)
        writer.write(f"GET {path} HTTP/1.1\r\nhost: test\r\n\r\n".encode())
        try:
            yield Reader(reader=reader, writer=writer)
        finally:
            writer.transport.abort()  # a reset, when bytes are still on their way
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    async def write(self, stream_id: str, *payloads: Payload) -> None:
        info = await self.store.info(stream_id)
        first = info.last + 1 if info else 1
        await self.store.apply(
            [
                Open(stream_id=stream_id, generation=1),
                Append(stream_id=stream_id, generation=1, first=first, frames=payloads),
            ]
        )

    async def close(self, stream_id: str) -> None:
        info = await self.store.info(stream_id)
        assert info is not None
        await self.store.close(Close(stream_id=stream_id, settled_last=info.last, frames=[RESULT]))

    async def unwatched(self) -> None:
        """Readers' sockets are noticed by the event loop; then nothing of them is left."""
        while self.hub.silent(0):  # noqa: ASYNC110 (the kernel sets no event of ours)
            await asyncio.sleep(0.005)


@dataclass(kw_only=True)
class Reader:
    """One HTTP/1.1 answer with chunked encoding, read as far as the test wants."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def head(self) -> bytes:
        return await self.reader.readuntil(b"\r\n\r\n")

    async def chunk(self) -> bytes:
        size = int(await self.reader.readuntil(b"\r\n"), 16)
        data = await self.reader.readexactly(size + 2)
        return data[:-2]

    async def events(self) -> list[Event]:
        await self.head()
        return await self.rest()

    async def rest(self) -> list[Event]:
        """To the end of the answer."""
        parser = EventStreamParser()
        events: list[Event] = []
        while chunk := await self.chunk():
            events += parser.feed(chunk)
        assert parser.at_rest
        return events


@pytest.fixture(scope="module")
def anyio_backend() -> tuple[str, dict[str, bool]]:
    return "asyncio", {"use_uvloop": True}  # as the gateway runs


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    with valkey_server() as url:
        client = connect(url)
        store = FrameStore(client, prefix="test", retain_s=60, max_bytes=4_194_304, max_streams=1000)
        hub = Hub(store, client)

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            stream_id, _, cursor = scope["path"].strip("/").partition("/")
            async with hub.watch(stream_id) as tail:
                await stream_sse(scope, receive, send, tail, int(cursor or 0), headers=[])

        listener = socket.create_server(("127.0.0.1", 0))
        server = Server(uvicorn.Config(app, lifespan="off", log_config=None, access_log=False, ws="none"))
        running = [asyncio.create_task(hub.run()), asyncio.create_task(server.serve([listener]))]
        yield Served(hub=hub, store=store, address=listener.getsockname()[:2], client=client)
        hub.drain()
        server.should_exit = True
        await running[1]
        running[0].cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running[0]
        await client.aclose()


def words(count: int) -> list[Payload]:
    return [text_payload(f"word {number}\n") for number in range(count)]


async def test_the_answer_ends_right_after_the_terminal_frame_and_the_connection_serves_again(served: Served) -> None:
    await served.write("st_1", *words(FRAMES))
    await served.close("st_1")
    async with asyncio.timeout(GUARD_S), served.get("/st_1") as reader:
        events = await reader.events()
        assert [event.seq for event in events] == list(range(1, FRAMES + 2))
        assert "".join(event.data for event in events[:-1]) == "".join(f"word {n}\n" for n in range(FRAMES))
        assert events[-1].type == "result"
        reader.writer.write(b"GET /st_1/2990 HTTP/1.1\r\nhost: test\r\n\r\n")
        assert [event.seq for event in await reader.events()] == list(range(2991, FRAMES + 2))
    assert served.hub.silent(0) == []


@pytest.mark.parametrize(
    ("cursor", "chunks_read"), [(0, 0), (0, 2), (FRAMES - 1, 2)], ids=["at once", "replay", "tail"]
)
async def test_readers_that_reset_leave_nothing_behind(served: Served, cursor: int, chunks_read: int) -> None:
    await served.write("st_1", *words(FRAMES))
    async with asyncio.timeout(GUARD_S), served.get(f"/st_1/{FRAMES}") as patient:
        await patient.head()
        await patient.chunk()
        tasks_before = len(asyncio.all_tasks())
        for _ in range(5):
            async with contextlib.AsyncExitStack() as stack:
                for _ in range(20):
                    reader = await stack.enter_async_context(served.get(f"/st_1/{cursor}"))
                    if chunks_read:
                        await reader.head()
                    for _ in range(chunks_read):
                        await reader.chunk()
        while len(asyncio.all_tasks()) > tasks_before:  # noqa: ASYNC110 (the kernel sets no event of ours)
            await asyncio.sleep(0.005)
        assert len(await served.client.client_list()) <= CONNECTIONS_MAX + 1
        await served.write("st_1", text_payload("after"))
        await served.close("st_1")
        events = await patient.rest()
        assert [(event.seq, event.data) for event in events[:-1]] == [(FRAMES + 1, "after")]
    await served.unwatched()


async def test_a_reader_that_stalls_gets_everything_when_it_reads_on(served: Served) -> None:
    async with asyncio.timeout(GUARD_S), served.get("/st_1") as stalled:
        for _ in range(30):
            await served.write("st_1", *[text_payload("x" * 1000)] * 100)
        await served.close("st_1")
        assert [event.seq for event in await stalled.events()] == list(range(1, 3002))


async def test_draining_ends_open_answers_without_a_terminal_frame(served: Served) -> None:
    await served.write("st_1", text_payload("a"))
    async with asyncio.timeout(GUARD_S), served.get("/st_1") as reader:
        await reader.head()
        while b"data: a" not in await reader.chunk():
            pass
        served.hub.drain()
        assert await reader.chunk() == b""


async def test_a_stream_that_is_not_there_yet_answers_at_once(served: Served) -> None:
    async with asyncio.timeout(GUARD_S), served.get("/st_not_yet") as reader:
        await reader.head()
        assert (await reader.chunk()).endswith(b": hb\n\n")
    await served.unwatched()
