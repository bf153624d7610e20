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
from runyard_gateway.http_protocol import HttpProtocol
from runyard_gateway.hub import Hub
from runyard_gateway.server import listen
from runyard_gateway.sse import HEARTBEAT, WRITE_BYTES, Chunk, stream_sse
from runyard_gateway.tail import Tail

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
    server: uvicorn.Server

    @contextlib.asynccontextmanager
    async def get(self, path: str, *, receives_bytes: int | None = None) -> AsyncIterator["Reader"]:
        """`receives_bytes`: what the kernel takes for a reader that does not read."""
        client = (
            socket.create_connection(self.address) if receives_bytes is None else narrow(self.address, receives_bytes)
        )
        reader, writer = await asyncio.open_connection(sock=client)
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
            while scope["method"] == "POST" and (await receive())["more_body"]:
                pass
            with hub.watch(stream_id) as tail:
                await stream_sse(scope, receive, send, tail, int(cursor or 0), headers=[])

        listener = listen("127.0.0.1", 0)
        config = uvicorn.Config(app, http=HttpProtocol, lifespan="off", log_config=None, access_log=False, ws="none")
        server = Server(config)
        running = [asyncio.create_task(hub.run()), asyncio.create_task(server.serve([listener]))]
        while hub.redis_away:  # noqa: ASYNC110 (it sets no event) - its subscription has tasks of its own
            await asyncio.sleep(0.005)
        yield Served(hub=hub, store=store, address=listener.getsockname()[:2], client=client, server=server)
        hub.drain()
        server.should_exit = True
        await running[1]
        running[0].cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running[0]
        await client.aclose()


def narrow(address: tuple[str, int], receives_bytes: int) -> socket.socket:
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receives_bytes)  # before it tells the peer
    client.connect(address)
    return client


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


async def test_a_caller_who_sent_much_and_leaves_is_noticed(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the end of their side alone: no heartbeat finds it out. Reading stands still behind a large body."""
    monkeypatch.setitem(stream_sse.__kwdefaults__, "heartbeat_s", 3600.0)
    async with asyncio.timeout(GUARD_S):
        reader, writer = await asyncio.open_connection(*served.address)
        body = b"x" * 200_000
        writer.write(b"POST /st_1 HTTP/1.1\r\nhost: test\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body))
        assert (await Reader(reader=reader, writer=writer).head()).startswith(b"HTTP/1.1 200")
        writer.close()
        await served.unwatched()


async def test_a_reader_that_stalls_gets_everything_when_it_reads_on(served: Served) -> None:
    async with asyncio.timeout(GUARD_S), served.get("/st_1") as stalled:
        for _ in range(30):
            await served.write("st_1", *[text_payload("x" * 1000)] * 100)
        await served.close("st_1")
        assert [event.seq for event in await stalled.events()] == list(range(1, 3002))


async def test_readers_that_stall_hold_little_and_lose_nothing(served: Served) -> None:
    """One is far behind and reads pages from Redis, one follows the window until it takes no more."""
    held_bytes = 2 * WRITE_BYTES + 10_000
    await served.write("st_1", *[text_payload("x" * 1000)] * 1500)
    async with (
        asyncio.timeout(GUARD_S),
        served.get("/st_1", receives_bytes=4096) as behind,
        served.get("/st_1/1500", receives_bytes=4096) as following,
    ):
        await following.head()
        for _ in range(20):
            await served.write("st_1", *[text_payload("y" * 2000)] * 40)
        while len(paused := [each for each in connections(served) if each.flow.write_paused]) < 2:  # noqa: ASYNC110 (the kernel sets no event of ours)
            await asyncio.sleep(0.005)
        for _ in range(10):
            await served.write("st_1", text_payload("z" * 60_000))
            assert [each.transport.get_write_buffer_size() <= held_bytes for each in paused] == [True, True]
        await served.close("st_1")
        assert [event.seq for event in await behind.events()] == list(range(1, 2312))
        assert [event.seq for event in await following.rest()] == list(range(1501, 2312))


def connections(served: Served) -> list[HttpProtocol]:
    return [each for each in served.server.server_state.connections if isinstance(each, HttpProtocol)]


async def test_those_who_wait_are_written_to_without_a_turn_of_their_tasks(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And get each frame once, though some of it came the other way: before they waited, and at the end."""
    pulls = 0
    pull = Tail.pull

    async def counted(tail: Tail, cursor: int, timeout_s: float) -> Chunk:
        nonlocal pulls
        pulls += 1
        return await pull(tail, cursor, timeout_s)

    monkeypatch.setattr(Tail, "pull", counted)
    async with asyncio.timeout(GUARD_S), contextlib.AsyncExitStack() as exits:
        readers = [await exits.enter_async_context(served.get("/st_1")) for _ in range(10)]
        for reader in readers:
            await reader.head()
            await reader.chunk()
        for number in range(50):
            await served.write("st_1", text_payload(f"{number}\n"), event_payload("note", {"number": number}))
        await served.close("st_1")
        for reader in readers:
            events = await reader.rest()
            assert [event.seq for event in events] == list(range(1, 102))
            assert "".join(event.data for event in events if not event.type) == "".join(f"{n}\n" for n in range(50))
    assert pulls < 10 * len(readers)


@pytest.mark.usefixtures("short_heartbeat")
async def test_a_heartbeat_follows_a_frame_however_it_was_written(served: Served) -> None:
    await served.write("st_1", text_payload("a"))
    async with asyncio.timeout(GUARD_S), served.get("/st_1/1") as reader:
        await reader.head()
        for seq in (2, 3):
            while await reader.chunk() != HEARTBEAT:
                pass
            await served.write("st_1", text_payload("w"))
            while not (chunk := await reader.chunk()).startswith(b"id: "):
                assert chunk == HEARTBEAT
            assert chunk == b"id: %d\ndata: w\n\n" % seq


@pytest.fixture
def short_heartbeat(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(stream_sse.__kwdefaults__, "heartbeat_s", 0.1)


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
