"""The HTTP server: uvicorn, told to drain at the first signal and to stop at once at the second."""

import asyncio
import contextlib
import errno
import socket
from collections.abc import Callable, Iterator

import uvicorn
from starlette.types import ASGIApp

from runyard.errors import StartError
from runyard.leaving import SIGNALS
from runyard_gateway.http_protocol import HttpProtocol

GRACE_S = 5
"""How long answers may go on after a signal. Open streams end at once, since their readers come back by cursor."""

KEEP_ALIVE_S = 75
"""How long an idle connection is kept: longer than clients and load balancers keep theirs (60 s in nginx and AWS). If
the gateway closed one just as the next call is sent over it, the call would be lost, and a POST must not be repeated
unasked."""

BACKLOG = 2048

UNSENT_BYTES = 65_536
"""How much of an answer the kernel accepts beyond what is on its way. Without this limit a stalled reader holds 4 MiB
of kernel memory (tcp(7), tcp_wmem)."""


class DrainingServer(uvicorn.Server):
    def __init__(self, app: ASGIApp, *, on_leave: Callable[[], None]) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                http=HttpProtocol,
                lifespan="off",  # the app's parts are opened and closed around the server
                log_config=None,
                access_log=False,
                server_header=False,
                ws="none",
                timeout_keep_alive=KEEP_ALIVE_S,
                timeout_graceful_shutdown=GRACE_S,
            )
        )
        self._on_leave = on_leave

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        # uvicorn's own version raises the signal again when it is done: the process would not exit with 0.
        loop = asyncio.get_running_loop()
        for number in SIGNALS:
            loop.add_signal_handler(number, self._leave)
        try:
            yield
        finally:
            for number in SIGNALS:
                loop.remove_signal_handler(number)

    def _leave(self) -> None:
        self.force_exit = self.should_exit
        self.should_exit = True
        self._on_leave()


def listen(host: str, port: int) -> socket.socket:
    """The listening socket.

    Raises:
        StartError: the port is taken, or the address does not belong to this machine.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, UNSENT_BYTES)  # accepted connections inherit it
    try:
        listener.bind((host, port))
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            raise StartError(f"port {port} on {host} is in use: stop what listens there, or set RUNYARD_PORT") from None
        raise StartError(f"cannot listen on {host}:{port}: {error.strerror} (RUNYARD_HOST, RUNYARD_PORT)") from None
    listener.setblocking(False)  # noqa: FBT003 - the name says which
    return listener
