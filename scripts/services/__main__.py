"""Makes sure that Postgres, Redis and RabbitMQ answer where the tests look for them.

One that listens is asked and used. One that does not is started at its address, if that is on this machine: from what
is installed, else, as root on Debian, from Debian's package. It stays, and a second call finds it.
"""

import fcntl
import sys

from scripts.services import debian
from scripts.services.servers import DATA, SERVERS, Server
from scripts.services.service import SERVICES, Unusable


def main() -> None:
    DATA.mkdir(parents=True, exist_ok=True)
    with (DATA / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two test runs that begin together start each server once
        silent = [server for server in SERVERS if not server.service.listens()]
        if silent:
            _start(silent)
    for service in SERVICES:
        service.wait_for_answer()
        print(f"{service.name} answers at {service.host}:{service.port}", flush=True)


def _start(servers: list[Server]) -> None:
    missing = [server for server in servers if not server.is_installed()]
    beyond = [server for server in servers if not server.service.is_here() or (server in missing and not debian.here())]
    if beyond:
        places = ", ".join(f"{s.service.name} ({s.service.host}:{s.service.port})" for s in beyond)
        variables = ", ".join(server.service.variable for server in beyond)
        raise Unusable(
            f"nothing listens for {places}: start it, all three with `docker compose -f compose.services.yaml up -d`, "
            f"or name another server in {variables}"
        )
    if missing:
        debian.install([server.package for server in missing])
    for server in servers:
        print(f"Starting {server.service.name}", flush=True)
        server.start()


if __name__ == "__main__":
    try:
        main()
    except Unusable as error:
        sys.exit(f"error: {error}")
