"""Servers for one test, which it may kill and start again with the data that they had on disk."""

import contextlib
import os
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pika
import psycopg
import redis
from scripts.proxy import NGINX
from scripts.services.servers import IS_ROOT, SERVERS, Server, rabbitmq_environment
from scripts.services.service import POSTGRES, RABBITMQ, Service

from runyard.cli import valkey
from tests.ports import free_port

GUARD_S = 90.0  # RabbitMQ needs 10 s on two cores that have nothing else to do
POLL_S = 0.05


class MortalServer:
    """One process, which is the leader of its group."""

    def __init__(
        self,
        url: str,
        command: list[str],
        *,
        folder: Path,
        ask: Callable[[str], None],
        environment: dict[str, str] | None = None,
        user: str | None = None,
    ) -> None:
        self.url = url
        self._command = command
        self._folder = folder
        self._ask = ask
        self._environment = {**os.environ, "HOME": str(folder), **(environment or {})}
        self._user = user
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Return when it answers."""
        with (self._folder / "output").open("ab") as output:
            self._process = subprocess.Popen(
                self._command,
                cwd=self._folder,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                **_identity(self._user),
            )
        give_up_s = time.monotonic() + GUARD_S
        while not self._answers():
            assert self._process.poll() is None, (self._folder / "output").read_text()
            assert time.monotonic() < give_up_s, f"nothing answers at {self.url}"
            time.sleep(POLL_S)  # a server that starts says nothing when it is ready: it can only be asked again

    def _answers(self) -> bool:
        try:
            self._ask(self.url)
        except (psycopg.Error, redis.RedisError, pika.exceptions.AMQPError, OSError):
            return False
        return True

    def kill(self) -> None:
        """As the kernel does when memory is short."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):  # it did not even start
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None


@contextlib.contextmanager
def mortal_redis() -> Iterator[MortalServer]:
    """With an append-only file, as `docs/brokers.md` asks for."""
    yield from _redis("--appendonly", "yes")


@contextlib.contextmanager
def forgetful_redis() -> Iterator[MortalServer]:
    """What it holds is gone with its process."""
    yield from _redis("--appendonly", "no")


def _redis(*options: str) -> Iterator[MortalServer]:
    with tempfile.TemporaryDirectory(prefix="runyard-") as name:
        port = free_port()
        command = [valkey.find_server(), "--port", str(port), "--bind", "127.0.0.1", "--save", "", *options]
        yield from _running(MortalServer(f"redis://127.0.0.1:{port}", command, folder=Path(name), ask=_ping))


@contextlib.contextmanager
def mortal_rabbitmq(**parameters: int) -> Iterator[MortalServer]:
    """A second node on this machine. `parameters`: of its application `rabbit`, also those no configuration file has.

    https://www.rabbitmq.com/docs/configure#config-items
    """
    server = _server(RABBITMQ)
    port = free_port()
    with _folder_of(server) as folder:
        arguments = " ".join(f"-rabbit {name} {value}" for name, value in parameters.items())
        broker = MortalServer(
            f"amqp://guest:guest@127.0.0.1:{port}",
            [str(_binary(server))],
            folder=folder,
            ask=RABBITMQ.ask,
            environment={
                **rabbitmq_environment(port=port, folder=folder),
                "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": arguments,
            },
            user=_user(server),
        )
        yield from _running(broker)


@contextlib.contextmanager
def mortal_postgres() -> Iterator[MortalServer]:
    """A second cluster on this machine; killed, it recovers from its log when it starts again."""
    server = _server(POSTGRES)
    binary = _binary(server)
    port = free_port()
    with _folder_of(server) as folder:
        data = folder / "data"
        initdb = [binary.with_name("initdb"), "--auth=trust", "--username=postgres", "--encoding=UTF8", "--no-sync"]
        subprocess.run(
            [*map(str, initdb), "-D", str(data)],
            check=True,
            cwd=folder,
            stdout=subprocess.DEVNULL,
            **_identity(_user(server)),
        )
        options = (f"port={port}", "listen_addresses=127.0.0.1", "unix_socket_directories=", "fsync=off")
        cluster = MortalServer(
            f"postgresql://postgres@127.0.0.1:{port}/postgres",
            [str(binary.with_name("postgres")), "-D", str(data), *(part for each in options for part in ("-c", each))],
            folder=folder,
            ask=POSTGRES.ask,
            user=_user(server),
        )
        yield from _running(cluster)


@contextlib.contextmanager
def mortal_nginx(upstream_port: int, *directives: str) -> Iterator[MortalServer]:
    """In front of what listens there, with these directives for all of it; what they do not set is as nginx comes."""
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="runyard-nginx-") as name:
        folder = Path(name)
        stores = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        lines = [
            *(["user root;"] if IS_ROOT else []),  # its folder is nobody else's
            "daemon off; pid pid; error_log error.log; events {}",
            f"http {{ access_log access.log; {' '.join(f'{store}_temp_path {store};' for store in stores)}",
            f"server {{ listen 127.0.0.1:{port}; {' '.join(directives)}",
            f"location / {{ proxy_pass http://127.0.0.1:{upstream_port}; }} }} }}",
        ]
        (folder / "conf").write_text("\n".join(lines))
        command = [str(NGINX.find()), "-p", name, "-c", "conf", "-e", "error.log"]
        yield from _running(MortalServer(f"http://127.0.0.1:{port}", command, folder=folder, ask=_listens))


def _listens(url: str) -> None:
    where = urlsplit(url)
    socket.create_connection((where.hostname, where.port), timeout=5).close()


def _server(service: Service) -> Server:
    (server,) = [server for server in SERVERS if server.service is service]
    return server


def _binary(server: Server) -> Path:
    binary = server.binary()
    assert binary is not None, f"no {server.service.name}: install the package {server.package}"
    return binary


def _user(server: Server) -> str | None:
    """Root runs none of these itself; another user runs them as itself."""
    return server.user if IS_ROOT else None


def _identity(user: str | None) -> dict[str, Any]:
    return {"user": user, "group": user, "extra_groups": [] if user else None}


@contextlib.contextmanager
def _folder_of(server: Server) -> Iterator[Path]:
    folder = Path(tempfile.gettempdir()) / f"runyard-{server.package}-{secrets.token_hex(6)}"
    folder.mkdir(mode=0o700)
    try:
        if user := _user(server):
            shutil.chown(folder, user, user)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _running(broker: MortalServer) -> Iterator[MortalServer]:
    try:
        broker.start()
        yield broker
    finally:
        broker.kill()


def _ping(url: str) -> None:
    with redis.Redis.from_url(url, socket_timeout=5) as client:
        client.ping()
