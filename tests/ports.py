"""Free ports for servers that are killed and started again on the same port."""

import secrets
import socket

EPHEMERAL_PORT_MIN = 32_768  # Linux: /proc/sys/net/ipv4/ip_local_port_range
LOWEST = 10_000
NEIGHBOUR = 20_000


def free_port() -> int:
    """One that is free, and the one `NEIGHBOUR` above it too. Neither is among those that the system gives to
    connections: a server that comes back would find its port taken by one.
    """
    while True:
        port = LOWEST + secrets.randbelow(EPHEMERAL_PORT_MIN - NEIGHBOUR - LOWEST)
        try:
            for number in (port, port + NEIGHBOUR):
                socket.create_server(("127.0.0.1", number)).close()
        except OSError:
            continue
        return port
