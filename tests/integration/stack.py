"""A whole system under test: a migrated database, Redis, the model's stand-in, gateways and workers as processes."""

import os
import secrets
import signal
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from http.cookiejar import DefaultCookiePolicy
from pathlib import Path
from typing import Any

import httpx2
import redis
import sqlalchemy as sa
from tests.clients.api import GUARD_S, Api
from tests.clients.specification import check_exchange
from tests.clients.tokens import SECRET, token
from tests.databases import postgres_database
from tests.integration.processes import BornProcess, Process, eventually
from tests.previous import PreviousVersion
from tests.rabbitmq_servers import rabbitmq_server
from tests.redis_servers import check_every_key_ends, redis_server, valkey_server
from tests.standin import Standin

from runyard.db.migrate import upgrade
from runyard.db.postgres import link_url

AGENTS = Path(__file__).parent / "agents"
MODEL = "claude-sonnet-4-5"
ALLOWED_MODEL = "claude-of-the-future"
API_KEY = "sk-ant-the-good-key-of-the-tests"
BAD_KEY = "sk-ant-a-key-that-was-revoked"

NOT_INHERITED = ("RUNYARD_", "ANTHROPIC_", "OPENAI_", "OTEL_", "PYTHONDONTWRITEBYTECODE")
"""The last one: without its bytecode the provider's SDK is compiled anew, for seconds, at every start of a worker."""


@dataclass(frozen=True, kw_only=True)
class Backing:
    """Where a stack keeps its truth, its frames and its messages."""

    name: str
    database_url: str
    redis_url: str
    broker_url: str
    prefix: str


@contextmanager
def sqlite_and_valkey(folder: Path) -> Iterator[Backing]:
    """As `runyard dev` has it."""
    with valkey_server() as redis_url:
        yield Backing(
            name="sqlite",
            database_url=f"sqlite:///{folder}/runyard.db",
            redis_url=redis_url,
            broker_url=redis_url,
            prefix="runyard",
        )


@contextmanager
def postgres_and_redis() -> Iterator[Backing]:
    """A database and a key prefix of its own on servers that others use too; both are gone afterwards."""
    redis_url = redis_server()
    with postgres_database() as database_url, prefix_of_ones_own(redis_url) as prefix:
        yield Backing(
            name="postgres", database_url=database_url, redis_url=redis_url, broker_url=redis_url, prefix=prefix
        )


@contextmanager
def prefix_of_ones_own(redis_url: str) -> Iterator[str]:
    """Its keys are gone afterwards."""
    prefix = f"runyard-test-{secrets.token_hex(6)}"
    try:
        yield prefix
    finally:
        with redis.Redis.from_url(redis_url) as client:
            for key in client.scan_iter(f"{prefix}*", count=1000):
                client.delete(key)


@contextmanager
def postgres_redis_and_rabbitmq() -> Iterator[Backing]:
    """The same with messages over RabbitMQ, whose queues of this prefix are left to whoever makes them."""
    with postgres_and_redis() as backing:
        yield replace(backing, name="rabbitmq", broker_url=rabbitmq_server())


@dataclass(kw_only=True)
class Stack:
    backing: Backing
    folder: Path
    standin: Standin
    database: sa.Engine
    redis: redis.Redis
    processes: list[Process] = field(default_factory=list)
    gateways: list["Gateway"] = field(default_factory=list)
    """Those that are there from the start; they take tokens (`RUNYARD_AUTH=jwt`)."""

    @property
    def name(self) -> str:
        return self.backing.name

    @property
    def gateway(self) -> "Gateway":
        return self.gateways[0]

    @contextmanager
    def used_by_one_test(self) -> Iterator[None]:
        """What the test scripted is forgotten after it, and nothing that it left in Redis stays for ever.

        Raises:
            AssertionError: so it was not, or the stand-in met what the test did not foresee.
        """
        yield
        unexpected = list(self.standin.unexpected)
        self.standin.reset()
        assert not unexpected, f"the stand-in met what no test foresaw: {unexpected}"
        check_every_key_ends(self.redis, self.backing.prefix)

    def environment(self, **settings: str) -> dict[str, str]:
        """Of a process: nothing of this machine's own settings reaches it, what is given comes last."""
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(NOT_INHERITED)}
        return inherited | {
            "RUNYARD_DATABASE_URL": self.backing.database_url,
            "RUNYARD_REDIS_URL": self.backing.redis_url,
            "RUNYARD_BROKER_URL": self.backing.broker_url,
            "RUNYARD_PREFIX": self.backing.prefix,
            "RUNYARD_AUTH": "jwt",
            "RUNYARD_JWT_SECRET": SECRET,
            "RUNYARD_PORT": "0",
            "RUNYARD_AGENTS": str(AGENTS),
            "RUNYARD_MODEL": MODEL,
            "RUNYARD_MODELS_ALLOWED": ALLOWED_MODEL,
            "ANTHROPIC_API_KEY": API_KEY,
            "ANTHROPIC_BASE_URL": self.standin.base_url,
            "TEST_FOLDER": str(self.folder),
            **settings,
        }

    @asynccontextmanager
    async def starting_gateway(self, **settings: str) -> AsyncIterator["Gateway"]:
        """One more gateway, for as long as the block runs."""
        with self.process("runyard_gateway", **settings) as process:
            async with serving(process) as gateway:
                yield gateway

    @asynccontextmanager
    async def starting_worker(self, **settings: str) -> AsyncIterator[Process]:
        """One more worker, for as long as the block runs; its agents are known when it begins."""
        with self.process("runyard_workers", **settings) as process:
            await process.logged("worker registered")
            yield process

    @contextmanager
    def process(self, module: str, *, of: PreviousVersion | None = None, **settings: str) -> Iterator[Process]:
        """A process that is starting; killed at the block's end, if it is still there."""
        log = self.folder / f"{len(self.processes):03d}-{module}.log"
        process: Process
        if of is None:
            process = BornProcess(module, environment=self.environment(**settings), log=log)
        else:
            named = {"RUNYARD_TEST_FOLDER": str(self.folder)}  # as the version before calls it
            process = of.process(module, environment=self.environment(**named, **of.settings | settings), log=log)
        self.processes.append(process)
        try:
            yield process
        finally:
            process.kill()

    def effects(self, run_id: str) -> list[str]:
        """What the tools of a run did to the world: see `agents/_outside.py`."""
        path = self.folder / "effects"
        lines = path.read_text().splitlines() if path.exists() else []
        return [effect for line in lines for run, effect in [line.split(" ", 1)] if run == run_id]

    def open_gate(self, name: str) -> None:
        """Let the tools go on that wait at it."""
        (self.folder / f"gate-{name}").touch()

    async def gate_reached(self, name: str) -> None:
        await eventually((self.folder / f"reached-{name}").exists, f"tool at the gate {name!r}")

    def execute(self, statement: str, **parameters: Any) -> list[Any]:
        """SQL behind everybody's back."""
        with self.database.begin() as connection:
            result = connection.execute(sa.text(statement), parameters)
            return list(result) if result.returns_rows else []

    def drop_frames(self, stream_id: str) -> None:
        """As if the stream's time in Redis were over."""
        key = f"{self.backing.prefix}:stream:{stream_id}"
        assert self.redis.delete(key, f"{key}:meta") == 2

    def trim_frames(self, stream_id: str, *, first: int) -> None:
        """As if the budget had taken those before."""
        key = f"{self.backing.prefix}:stream:{stream_id}"
        self.redis.xtrim(key, minid=str(first), approximate=False)
        self.redis.hset(f"{key}:meta", "first", first)


@dataclass(frozen=True, kw_only=True)
class Gateway:
    process: Process
    http: httpx2.AsyncClient
    host: str
    port: int

    def user(self, name: str | None = None, *, tenant: str | None = None, roles: tuple[str, ...] | None = None) -> Api:
        """A user; without a name, one that nobody else has."""
        name = name or f"user-{secrets.token_hex(6)}"
        return self.bearer(token(name, tenant=tenant, roles=roles))

    def bearer(self, given: str) -> Api:
        return Api(self.http, {"Authorization": f"Bearer {given}"})

    def anonymous(self) -> Api:
        return Api(self.http, {})


@asynccontextmanager
async def serving(process: Process, *, is_described: bool = True) -> AsyncIterator[Gateway]:
    """A gateway's process, once it serves. `is_described`: by the document of this version."""
    listening = await process.logged("gateway listens")
    base_url = f"http://{listening['host']}:{listening['port']}"
    limits = httpx2.Limits(max_connections=None)
    hooks = {"response": [check_exchange] if is_described else []}
    async with httpx2.AsyncClient(
        base_url=base_url, timeout=GUARD_S, limits=limits, trust_env=False, event_hooks=hooks
    ) as http:
        http.cookies.jar.set_policy(DefaultCookiePolicy(allowed_domains=[]))  # it is shared by all users of a test
        gateway = Gateway(process=process, http=http, host=listening["host"], port=listening["port"])
        response = await gateway.anonymous().get("/readyz")
        assert response.status_code == 200, response.text
        yield gateway


@asynccontextmanager
async def starting_stack(backing: Backing, folder: Path) -> AsyncIterator[Stack]:
    """One gateway, one worker."""
    async with standing_by(backing, folder) as stack:
        # Both start at the same time: most of it is imports.
        with stack.process("runyard_workers") as worker, stack.process("runyard_gateway") as process:
            async with serving(process) as gateway:
                await worker.logged("worker registered")
                stack.gateways.append(gateway)
                yield stack
                for leaving in (process, worker):
                    leaving.send(signal.SIGTERM)
                assert [await process.exited(), await worker.exited()] == [0, 0]
                assert process.complaints() + worker.complaints() == []


@asynccontextmanager
async def standing_by(
    backing: Backing, folder: Path, *, migrate: Callable[[str], None] = upgrade
) -> AsyncIterator[Stack]:
    """All that the processes need, and none of them."""
    migrate(backing.database_url)
    async with Standin(bad_keys={BAD_KEY}) as standin:
        stack = Stack(
            backing=backing,
            folder=folder,
            standin=standin,
            database=_engine(backing.database_url),
            redis=redis.Redis.from_url(backing.redis_url),
        )
        try:
            yield stack
        finally:
            stack.redis.close()
            stack.database.dispose()


def _engine(url: str) -> sa.Engine:
    return sa.create_engine(url if url.startswith("sqlite:") else link_url(url), poolclass=sa.NullPool)
