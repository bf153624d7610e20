"""`python -m benchmarks.floors.fan_out`: writes what it is given to all who listen, on raw asyncio transports.

Whoever sends `GET ...` listens from then on. Whoever sends nothing but records of a length (4 bytes, big-endian) and so
many bytes is heard: each record goes to every listener, in one write, as one chunk.
"""

import asyncio
import json
import sys
from typing import cast

import uvloop

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n6\r\n: hb\n\n\r\n"
LISTENERS: set[asyncio.WriteTransport] = set()


class Connection(asyncio.Protocol):
    def __init__(self) -> None:
        self._received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.WriteTransport", transport)

    def connection_lost(self, exc: Exception | None) -> None:
        LISTENERS.discard(self._transport)

    def data_received(self, data: bytes) -> None:
        if data.startswith(b"GET "):
            LISTENERS.add(self._transport)
            self._transport.write(HEAD)
            return
        self._received += data
        while len(self._received) >= 4 and len(self._received) >= 4 + (size := int.from_bytes(self._received[:4])):
            body, self._received = self._received[4 : 4 + size], self._received[4 + size :]
            chunk = b"%x\r\n%b\r\n" % (size, body)
            for listener in LISTENERS:
                listener.write(chunk)


async def serve() -> None:
    server = await asyncio.get_running_loop().create_server(Connection, "127.0.0.1", 0, backlog=2048)
    print(json.dumps({"event": "listens", "port": server.sockets[0].getsockname()[1]}), file=sys.stderr, flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(serve())
