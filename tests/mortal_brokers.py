"""Brokers of the tests' own that may be killed, and started again with what they had on disk."""

import os
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pika
import redis
from scripts.services.servers import IS_ROOT, SERVERS, rabbitmq_environment
from scripts.services.service import RABBITMQ

from runyard.cli import valkey

GUARD_S = 90.0  # RabbitMQ needs 10 s on two cores that have nothing else to do
POLL_S = 0.05
DIST_PORT_OFFSET = 20_000


class MortalBroker:
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
                user=self._user,
                group=self._user,
                extra_groups=[] if self._user else None,
            )
        give_up_s = time.monotonic() + GUARD_S
        while not self._answers():
            assert self._process.poll() is None, (self._folder / "output").read_text()
            assert time.monotonic() < give_up_s, f"nothing answers at {self.url}"
            time.sleep(POLL_S)

    def _answers(self) -> bool:
        try:
            self._ask(self.url)
        except (redis.RedisError, pika.exceptions.AMQPError, OSError):
            return False
        return True

    def kill(self) -> None:
        """As the kernel does when memory is short."""
        if self._process is not None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None


@contextmanager
def mortal_redis() -> Iterator[MortalBroker]:
    """With an append-only file, as `docs/brokers.md` asks for."""
    with tempfile.TemporaryDirectory(prefix="runyard-") as name:
        folder = Path(name)
        server = valkey.server(valkey.find_server(), socket=folder / "valkey.sock", folder=folder)
        broker = MortalBroker(f"unix://{folder}/valkey.sock", list(server.command), folder=folder, ask=_ping)
        yield from _running(broker)


@contextmanager
def mortal_rabbitmq() -> Iterator[MortalBroker]:
    """A second node on this machine."""
    (server,) = [server for server in SERVERS if server.service is RABBITMQ]
    binary = server.binary()
    assert binary is not None, f"no rabbitmq-server: install the package {server.package}"
    port = _free_port()
    folder = Path(tempfile.gettempdir()) / f"runyard-rabbitmq-{secrets.token_hex(6)}"
    folder.mkdir(mode=0o700)
    user = server.user if IS_ROOT else None
    if user:
        shutil.chown(folder, user, user)
    try:
        broker = MortalBroker(
            f"amqp://guest:guest@127.0.0.1:{port}",
            [str(binary)],
            folder=folder,
            ask=RABBITMQ.ask,
            environment=rabbitmq_environment(port=port, folder=folder),
            user=user,
        )
        yield from _running(broker)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _running(broker: MortalBroker) -> Iterator[MortalBroker]:
    try:
        broker.start()
        yield broker
    finally:
        broker.kill()


def _ping(url: str) -> None:
    with redis.Redis.from_url(url, socket_timeout=5) as client:
        client.ping()


def _free_port() -> int:
    """One whose neighbour for the node's own affairs is free too."""
    while True:
        with socket.create_server(("127.0.0.1", 0)) as one:
            port = int(one.getsockname()[1])
        if port + DIST_PORT_OFFSET > 65_535:
            continue
        try:
            socket.create_server(("127.0.0.1", port + DIST_PORT_OFFSET)).close()
        except OSError:
            continue
        return port
