"""The folder `.runyard/` with everything that `runyard dev` keeps, and the lock by which one process owns it."""

import asyncio
import fcntl
import hashlib
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Self
from urllib.parse import quote

from runyard.errors import StartError

SOCKET_PATH_MAX_BYTES = 103  # unix(7): sun_path has 108 bytes on Linux, 104 on macOS, the NUL at its end included
LOCK_WAIT_S = 3.0  # the group of a supervisor that was killed holds the lock until its last member is gone
LOCK_POLL_S = 0.05


@dataclass(frozen=True, kw_only=True)
class State:
    folder: Path
    socket: Path
    """Where Valkey listens: in the folder, or in a short one under /tmp when the folder's path is too long for that."""

    @classmethod
    def open(cls, folder: Path) -> Self:
        """Make what is missing.

        Raises:
            StartError: the folder cannot be made or is another user's.
        """
        folder = folder.resolve()
        try:
            folder.mkdir(parents=True, exist_ok=True)
            return cls(folder=folder, socket=_folder_of_socket(folder) / "valkey.sock")
        except OSError as error:
            raise _unusable(folder, error) from error

    @property
    def database_url(self) -> str:
        return f"sqlite:///{quote(str(self.folder / 'runyard.db'))}"

    @property
    def redis_url(self) -> str:
        return f"unix://{quote(str(self.socket))}"

    @asynccontextmanager
    async def locked(self) -> AsyncIterator[int]:
        """Yields the descriptor of the lock. It is held until no process has that descriptor open.

        Raises:
            StartError: another `runyard dev` holds it, or another user's has left it.
        """
        try:
            lock = (self.folder / "lock").open("a+")
        except OSError as error:
            raise _unusable(self.folder, error) from error
        with lock as file:
            give_up_s = asyncio.get_running_loop().time() + LOCK_WAIT_S
            while not _try_lock(file.fileno()):
                if asyncio.get_running_loop().time() > give_up_s:
                    file.seek(0)
                    raise StartError(
                        f"another `runyard dev` (process {file.read()}) uses {self.folder}: "
                        "stop it, or start this one in another folder"
                    )
                await asyncio.sleep(LOCK_POLL_S)
            file.truncate(0)
            file.write(str(os.getpid()))
            file.flush()
            yield file.fileno()


def _unusable(folder: Path, error: OSError) -> StartError:
    return StartError(f"the state folder {folder} cannot be used: {error.strerror}")


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _folder_of_socket(folder: Path) -> Path:
    if len(os.fsencode(folder / "valkey.sock")) <= SOCKET_PATH_MAX_BYTES:
        return folder
    key = hashlib.sha256(os.fsencode(folder)).hexdigest()[:16]
    # Not the folder of TMPDIR, which may be long as well.
    short = Path("/tmp") / f"runyard-{os.getuid()}-{key}"  # noqa: S108 (its owner is checked below)
    short.mkdir(mode=0o700, exist_ok=True)
    if short.is_symlink() or short.stat().st_uid != os.getuid():
        raise StartError(f"{short} belongs to somebody else: remove it")
    return short
