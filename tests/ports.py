"""Free ports for servers that are killed and started again on the same port."""

import itertools
import secrets
import socket

EPHEMERAL_PORT_MIN = 32_768  # Linux: /proc/sys/net/ipv4/ip_local_port_range
LOWEST = 10_000
NEIGHBOUR = 20_000
_PORTS = EPHEMERAL_PORT_MIN - NEIGHBOUR - LOWEST
_asked = itertools.count(secrets.randbelow(_PORTS))


def free_port() -> int:
    """One that is free, and the one `NEIGHBOUR` above it too. Neither is among those that the system gives to
    connections: a server that comes back would find its port taken by one. One port comes after the other, so that
    nobody else is given one whose server has not started yet, or is down.
    """
    while True:
        port = LOWEST + next(_asked) % _PORTS
        try:
            for number in (port, port + NEIGHBOUR):
                socket.create_server(("127.0.0.1", number)).close()
        except OSError:
            continue
        return port
