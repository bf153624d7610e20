"""A relay before a TCP server that can fail as networks do: cut all connections, refuse new ones, go silent."""

import contextlib
import socket
import threading
from collections.abc import Iterator
from urllib.parse import urlsplit

from tests.ports import free_port

CHUNK_BYTES = 65_536


class Relay:
    """Runs in threads of its own, so that a test may block on what goes through it."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._target = (parts.hostname, parts.port)
        self.port = free_port()
        self._listener = socket.create_server(("127.0.0.1", self.port))
        credentials = parts.netloc.rpartition("@")[0]
        self.url = parts._replace(
            netloc=f"{credentials}@127.0.0.1:{self.port}" if credentials else f"127.0.0.1:{self.port}"
        ).geturl()
        self.sent = bytearray()
        """All that clients have sent, also what has not passed yet."""
        self._links: list[socket.socket] = []
        self._open = 0
        self._lock = threading.Lock()
        self._flowing = threading.Event()
        self._flowing.set()
        self._silent_at: bytes | None = None
        self._serve()

    def _serve(self) -> None:
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    def _accept(self, listener: socket.socket) -> None:
        with contextlib.suppress(OSError):  # it is closed when the relay refuses
            while True:
                client, _ = listener.accept()
                try:
                    server = socket.create_connection(self._target)
                except OSError:
                    client.close()
                    continue
                with self._lock:
                    self._links += [client, server]
                    self._open += 1
                threading.Thread(target=self._link, args=(client, server), daemon=True).start()

    def _link(self, client: socket.socket, server: socket.socket) -> None:
        answers = threading.Thread(target=self._pump, args=(server, client, bytearray()), daemon=True)
        answers.start()
        self._pump(client, server, self.sent)
        answers.join()
        with self._lock:
            self._open -= 1

    def _pump(self, source: socket.socket, sink: socket.socket, seen: bytearray) -> None:
        with contextlib.suppress(OSError):
            while chunk := source.recv(CHUNK_BYTES):
                seen += chunk
                if self._silent_at is not None and self._silent_at in chunk:
                    self.fall_silent()
                self._flowing.wait()
                sink.sendall(chunk)
        for end in (source, sink):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def open_links(self) -> int:
        return self._open

    def cut(self) -> None:
        """End every link there is; new ones are taken."""
        with self._lock:
            links, self._links = self._links, []
        for link in links:
            with contextlib.suppress(OSError):
                link.shutdown(socket.SHUT_RDWR)
            link.close()

    def refuse(self) -> None:
        """As a server that is down: every link ends, and there is no new one."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # a thread that waits in accept would keep it open
        self._listener.close()
        self.cut()

    def fall_silent(self) -> None:
        """As a server that is frozen: links are taken and kept, and nothing passes."""
        self._silent_at = None
        self._flowing.clear()

    def fall_silent_at(self, sent: bytes) -> None:
        """The same from the moment on when somebody sends this, which does not pass."""
        self._silent_at = sent

    def recover(self) -> None:
        """As a server that is up again, or thaws."""
        self._flowing.set()
        if self._listener.fileno() == -1:
            self._listener = socket.create_server(("127.0.0.1", self.port))
            self._serve()

    def lead_to(self, url: str) -> None:
        """New links go to another server."""
        parts = urlsplit(url)
        self._target = (parts.hostname, parts.port)

    def close(self) -> None:
        self._flowing.set()
        self.refuse()


@contextlib.contextmanager
def relay_before(url: str) -> Iterator[Relay]:
    relay = Relay(url)
    try:
        yield relay
    finally:
        relay.close()
