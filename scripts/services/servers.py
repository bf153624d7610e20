"""How each service is started on this machine without systemd: its binary, its user, its data, its command."""

import os
import pwd
import shutil
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from scripts.services.service import POSTGRES, RABBITMQ, REDIS, Service, Unusable

IS_ROOT = os.geteuid() == 0
DATA = Path("/var/lib/runyard-services") if IS_ROOT else Path(__file__).resolve().parents[2] / ".services"
"""Outside of the project for root: a server outlives the clone that started it, and the servers' own users cannot
enter every folder that root works in."""
STARTED_S = 90.0  # RabbitMQ takes 10 s, more on a busy machine


@dataclass(frozen=True, kw_only=True)
class Server:
    service: Service
    package: str
    user: str
    """Whom Debian's package runs it as. Root runs none of them itself; another user runs them as itself."""
    binary: Callable[[], Path | None]
    begin: Callable[["Server", Path], None]
    """Takes the binary; returns once the server runs in the background, or will."""

    @property
    def folder(self) -> Path:
        return DATA / f"{self.package}-{self.service.port}"

    def run(self, *command: str | Path, environment: Mapping[str, str] | None = None) -> None:
        """Run a command of the server's as its user, in its folder, its output in `start.log` there.

        Raises:
            Unusable: it failed.
        """
        log = self.folder / "start.log"
        user = self.user if IS_ROOT else None
        with log.open("ab") as output:
            done = subprocess.run(
                command,
                check=False,
                cwd=self.folder,
                env={**os.environ, "HOME": str(self.folder), **(environment or {})},  # RabbitMQ keeps its cookie there
                stdin=subprocess.DEVNULL,
                stdout=output,  # never a pipe: a server would hold it open
                stderr=output,
                start_new_session=True,  # Ctrl-C ends the tests, not the servers
                user=user,
                group=user,
                extra_groups=[] if user else None,
            )
        if done.returncode != 0:
            raise Unusable(f"{self.service.name} could not be started: {log} says why")

    def is_installed(self) -> bool:
        return self.binary() is not None and (not IS_ROOT or self.user in {entry.pw_name for entry in pwd.getpwall()})

    def start(self) -> None:
        """Return when it answers.

        Raises:
            Unusable: it could not be started, or does not answer in time.
        """
        binary = self.binary()
        if binary is None:
            raise Unusable(f"{self.service.name} is not where the package {self.package} puts it")
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if IS_ROOT:
            DATA.chmod(0o755)
            shutil.chown(self.folder, self.user, self.user)
        self.begin(self, binary)
        try:
            self.service.wait_for_answer(STARTED_S)
        except Unusable as error:
            raise Unusable(f"{self.service.name} was started but does not answer: look into {self.folder}") from error


def _find_postgres() -> Path | None:
    versions = Path("/usr/lib/postgresql").glob("*/bin/pg_ctl")  # Debian keeps them off PATH
    newest = max(versions, key=lambda path: int(path.parts[-3]), default=None)
    return newest or _which("pg_ctl")


def _start_postgres(server: Server, pg_ctl: Path) -> None:
    data, fresh = server.folder / "data", server.folder / "fresh"
    if not data.exists():
        shutil.rmtree(fresh, ignore_errors=True)  # of an initdb that was killed
        initdb = pg_ctl.with_name("initdb")
        server.run(initdb, "--auth=trust", "--username=postgres", "--encoding=UTF8", "--no-sync", "-D", fresh)
        fresh.rename(data)
    # Nobody needs the tests' data after a power cut. TCP alone: a socket's path may be too long.
    options = f"-p {server.service.port} -c listen_addresses=127.0.0.1 -c unix_socket_directories= -c fsync=off"
    server.run(pg_ctl, "start", "-w", "-D", data, "-l", server.folder / "server.log", "-o", options)


def _start_redis(server: Server, binary: Path) -> None:
    port = str(server.service.port)
    nothing_on_disk = ("--appendonly", "no", "--save", "")
    server.run(binary, "--bind", "127.0.0.1", "--port", port, *nothing_on_disk, "--dir", ".", "--daemonize", "yes")


def _find_rabbitmq() -> Path | None:
    debian = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")  # what its wrapper on PATH runs, as one user alone
    return debian if debian.exists() else _which("rabbitmq-server")


def _start_rabbitmq(server: Server, binary: Path) -> None:
    server.run(binary, "-detached", environment=rabbitmq_environment(port=server.service.port, folder=server.folder))


def rabbitmq_environment(*, port: int, folder: Path) -> dict[str, str]:
    """Of a node that shares nothing with others on this machine; everything it keeps is in `folder`."""
    return {
        "RABBITMQ_NODENAME": f"runyard-{port}@localhost",
        "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
        "RABBITMQ_NODE_PORT": str(port),
        "RABBITMQ_DIST_PORT": str(port + 20_000),
        "RABBITMQ_MNESIA_BASE": str(folder / "data"),
        "RABBITMQ_LOG_BASE": str(folder / "log"),
        "RABBITMQ_CONFIG_FILE": str(folder / "rabbitmq"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "plugins"),
    }


def _which(name: str) -> Path | None:
    found = shutil.which(name)
    return Path(found) if found else None


SERVERS = (
    Server(service=POSTGRES, package="postgresql", user="postgres", binary=_find_postgres, begin=_start_postgres),
    Server(
        service=REDIS,
        package="redis-server",
        user="redis",
        binary=lambda: _which("redis-server") or _which("valkey-server"),
        begin=_start_redis,
    ),
    Server(service=RABBITMQ, package="rabbitmq-server", user="rabbitmq", binary=_find_rabbitmq, begin=_start_rabbitmq),
)
