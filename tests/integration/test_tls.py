"""Links of gateway, worker and command are encrypted where the URLs say so, to servers that are vouched for alone."""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import quote

import pytest
from tests.contract.queue.listening import listening, sent
from tests.contract.queue.queue_sides import rabbitmq_side
from tests.integration.certificates import Authority
from tests.integration.stack import Backing, Stack, postgres_redis_and_rabbitmq, starting_stack
from tests.integration.tls_relay import TlsRelay, tls_before
from tests.standin import says
from typer.testing import CliRunner

from runyard.cli.command import app
from runyard.db.depth import read_beats
from runyard.db.engine import Database
from runyard.db.migrate import require_revision
from runyard.errors import StartError, StoreUnavailable
from runyard.queue.dead import dead_letters
from runyard.queue.links import BrokerAwayError
from runyard.streams.connect import connect, redis_run_id

pytestmark = [pytest.mark.anyio, pytest.mark.services]


@dataclass(frozen=True, kw_only=True)
class Encrypted:
    """Postgres, Redis and RabbitMQ behind TLS. `links` of each."""

    plain: Backing
    database: TlsRelay
    redis: TlsRelay
    broker: TlsRelay

    def trusting(self, authority: Authority) -> Backing:
        """For clients that know this authority."""
        ca = quote(str(authority.file))
        return replace(
            self.plain,
            database_url=self.database.url("postgres", f"sslmode=verify-full&sslrootcert={ca}"),
            redis_url=self.redis.url("rediss", f"ssl_ca_certs={ca}"),
            broker_url=self.broker.url("amqps", f"ssl_options={{'cafile':'{ca}'}}"),
        )


@contextmanager
def encrypted(plain: Backing, shown: ssl.SSLContext) -> Iterator[Encrypted]:
    with ExitStack() as exits:
        urls = (plain.database_url, plain.redis_url, plain.broker_url)
        database, redis, broker = [exits.enter_context(tls_before(url, shown)) for url in urls]
        yield Encrypted(plain=plain, database=database, redis=redis, broker=broker)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority.founded(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def services(authority: Authority) -> Iterator[Encrypted]:
    with (
        postgres_redis_and_rabbitmq() as plain,
        rabbitmq_side(plain.broker_url, plain.prefix),
        encrypted(plain, authority.server()) as services,
    ):
        yield services


@pytest.fixture(scope="module")
async def stack(
    services: Encrypted, authority: Authority, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Stack]:
    """What runs there has no other way to any of the three."""
    async with starting_stack(services.trusting(authority), tmp_path_factory.mktemp("tls")) as stack:
        yield stack


async def test_a_run_goes_its_whole_way_over_tls(stack: Stack, services: Encrypted) -> None:
    stack.standin.answers(says("Encrypted."))
    async with stack.gateway.user().streaming("talker") as reading:
        assert (await reading.rest())[-1].type == "result"
    assert reading.text == "Encrypted."
    assert min(services.database.links, services.redis.links, services.broker.links) >= 2


@pytest.mark.parametrize(
    "arguments", [["migrate"], ["queues", "--json"], ["queues", "dead", "list", "--json"], ["fsck", "--json"]]
)
async def test_the_command_takes_the_same_urls(
    stack: Stack, arguments: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in stack.environment().items():
        if name.startswith("RUNYARD_"):
            monkeypatch.setenv(name, value)
    done = await asyncio.to_thread(CliRunner().invoke, app, arguments)
    assert (done.exit_code, done.exception) == (0, None), done.output
    if "--json" in arguments:
        for line in done.stdout.splitlines():
            assert json.loads(line)["brokerError"] is None


async def test_redis_may_be_the_broker(services: Encrypted, authority: Authority) -> None:
    url = services.trusting(authority).redis_url
    async with listening(url, services.plain.prefix) as worker:
        await sent(url, services.plain.prefix)
        await worker.has_woken(1)


async def test_who_is_not_vouched_for_is_refused(services: Encrypted, tmp_path: Path) -> None:
    await refused(services.trusting(Authority.founded(tmp_path, "another")))


async def test_who_is_vouched_for_elsewhere_is_refused(services: Encrypted, authority: Authority) -> None:
    with encrypted(services.plain, authority.server("192.0.2.1")) as elsewhere:
        await refused(elsewhere.trusting(authority))


async def refused(backing: Backing) -> None:
    """By every client there is."""
    database, client = Database(backing.database_url, pool_size=1), connect(backing.redis_url)
    with pytest.raises(StoreUnavailable):
        await database.read(read_beats)
    with pytest.raises(StoreUnavailable):
        await redis_run_id(client)
    with pytest.raises(StartError, match="certificate"):
        require_revision(backing.database_url)
    for url in (backing.broker_url, backing.redis_url):
        with pytest.raises(BrokerAwayError), dead_letters(url, prefix=backing.prefix) as letters:
            letters.listed("default")
    await database.close()
    await client.aclose()
