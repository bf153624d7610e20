"""Redis behind one address that leads to another server after a failover, while links to the old one stay open."""

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from urllib.parse import urlsplit

import pytest
import redis
from tests.contract.queue.listening import listening, publishing, wake
from tests.mortal_servers import MortalServer, forgetful_redis
from tests.relay import Relay, relay_before

from runyard.errors import StoreUnavailable
from runyard.frames import text_payload
from runyard.ids import new_stream_id
from runyard.streams.connect import connect
from runyard.streams.ops import Append, Open, Status
from runyard.streams.store import FrameStore

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("impatient")]


@dataclass(frozen=True, kw_only=True)
class Pair:
    """`url` leads to the primary; the other has what it has."""

    servers: tuple[MortalServer, MortalServer]
    relay: Relay

    @property
    def url(self) -> str:
        return self.relay.url

    def fail_over(self) -> None:
        """They change places. Whoever is connected to the first one stays so."""
        old, new = (redis.Redis.from_url(server.url) for server in self.servers)
        parts = urlsplit(self.servers[1].url)
        new.replicaof("NO", "ONE")
        old.replicaof(parts.hostname, parts.port)
        self.relay.lead_to(self.servers[1].url)
        old.close()
        new.close()


@pytest.fixture
def pair() -> Iterator[Pair]:
    with ExitStack() as exits:
        servers = exits.enter_context(forgetful_redis()), exits.enter_context(forgetful_redis())
        primary = urlsplit(servers[0].url)
        with redis.Redis.from_url(servers[0].url) as old:
            old.config_set("repl-diskless-sync-delay", 0)  # seconds in which it would wait for more replicas
        with redis.Redis.from_url(servers[1].url) as replica:
            replica.replicaof(primary.hostname, primary.port)
            while replica.info("replication")["master_link_status"] != "up":
                pass  # the first copy; the test's own time limit ends it
        yield Pair(servers=servers, relay=exits.enter_context(relay_before(servers[0].url)))


async def test_messages_come_over_the_new_primary(pair: Pair) -> None:
    async with listening(pair.url, "test", slots=9) as worker, publishing(pair.url, "test") as publisher:
        wake(publisher)
        await worker.has_woken(1)
        await asyncio.to_thread(pair.fail_over)
        for number in range(2, 5):
            wake(publisher)
            await worker.has_woken(number)


async def test_frames_are_written_to_the_new_primary(pair: Pair) -> None:
    client = connect(pair.url)
    store = FrameStore(client, prefix="test", retain_s=60, max_bytes=10**6, max_streams=10)
    stream_id = new_stream_id()
    await store.apply([Open(stream_id=stream_id, generation=1)])
    await asyncio.to_thread(pair.fail_over)
    append = Append(stream_id=stream_id, generation=1, first=1, frames=[text_payload("on")])
    with pytest.raises(StoreUnavailable):
        await store.apply([append])
    (answer,) = await store.apply([append])
    assert answer.status is Status.OK
    await client.aclose()
