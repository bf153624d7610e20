"""The three services: the address of each, and a request that it must answer."""

import logging
import os
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import urlsplit

import pika
import psycopg
import redis

LISTENING_S = 10.0  # what listens may still be starting
POLL_S = 0.2


class Unusable(Exception):
    """The message is one line that says what to do."""


@dataclass(frozen=True, kw_only=True)
class Service:
    name: str
    variable: str
    default_url: str
    ask: Callable[[str], None]

    @property
    def url(self) -> str:
        return os.environ.get(self.variable) or self.default_url

    @property
    def host(self) -> str:
        return urlsplit(self.url).hostname or "127.0.0.1"

    @property
    def port(self) -> int:
        return urlsplit(self.url).port or urlsplit(self.default_url).port or 0

    def listens(self) -> bool:
        try:
            socket.create_connection((self.host, self.port), timeout=5).close()
        except OSError:
            return False
        return True

    def is_here(self) -> bool:
        return self.host in {"127.0.0.1", "localhost"}

    def wait_for_answer(self, limit_s: float = LISTENING_S) -> None:
        """Return when it answered.

        Raises:
            Unusable: it gave no right answer in time.
        """
        give_up_s = time.monotonic() + limit_s
        while True:
            try:
                return self.ask(self.url)
            except (psycopg.Error, redis.RedisError, pika.exceptions.AMQPError, OSError) as error:
                if time.monotonic() > give_up_s:
                    reason = " ".join(str(error).split()) or type(error).__name__
                    raise Unusable(
                        f"what listens on {self.host}:{self.port} does not answer as {self.name} ({reason}): "
                        f"free the port, or name another server in {self.variable}"
                    ) from error
            time.sleep(POLL_S)  # a server that starts says nothing when it is ready: it can only be asked again


def _ask_postgres(url: str) -> None:
    with psycopg.connect(url, connect_timeout=5) as connection:
        connection.execute("SELECT 1")


def _ask_redis(url: str) -> None:
    with redis.Redis.from_url(url, socket_timeout=5, socket_connect_timeout=5) as client:
        client.ping()


def _ask_rabbitmq(url: str) -> None:
    logging.getLogger("pika").setLevel(logging.CRITICAL)  # it logs each failed try with a traceback
    pika.BlockingConnection(pika.URLParameters(url)).close()


POSTGRES = Service(
    name="Postgres",
    variable="RUNYARD_TEST_POSTGRES_URL",
    default_url="postgresql://postgres@127.0.0.1:5432",
    ask=_ask_postgres,
)
REDIS = Service(name="Redis", variable="RUNYARD_TEST_REDIS_URL", default_url="redis://127.0.0.1:6379/0", ask=_ask_redis)
RABBITMQ = Service(
    name="RabbitMQ",
    variable="RUNYARD_TEST_RABBITMQ_URL",
    default_url="amqp://guest:guest@127.0.0.1:5672",
    ask=_ask_rabbitmq,
)
SERVICES = (POSTGRES, REDIS, RABBITMQ)
