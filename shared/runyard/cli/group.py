"""The process group of everything that `runyard dev` starts. It dies with its supervisor, however the
supervisor dies.
"""

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator
from dataclasses import dataclass

LEADER = ("/bin/sh", "-c", "read _; kill -KILL 0")
"""Waits for the end of its input, then kills its whole group, itself included.

It is a shell since that starts in a millisecond, exists on every POSIX system, and shares no name with what it guards.
"""


@dataclass(frozen=True, kw_only=True)
class ProcessGroup:
    leader: asyncio.subprocess.Process

    @property
    def id(self) -> int:
        return self.leader.pid

    def kill(self) -> None:
        """SIGKILL to every member, grandchildren included."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.id, signal.SIGKILL)


@contextlib.asynccontextmanager
async def process_group(*, holding: int) -> AsyncIterator[ProcessGroup]:
    """A group of its own, out of the terminal's reach: only the supervisor gets Ctrl-C, and it stops the others in
    order.

    The leader's input is a pipe whose other end only this process holds. When this process ends, even by SIGKILL, the
    leader kills the group. `holding` is a file descriptor that the leader keeps open as long, so that a lock on it is
    free only when every member has been killed.
    """
    read_end, write_end = os.pipe()
    try:
        leader = await asyncio.create_subprocess_exec(*LEADER, stdin=read_end, process_group=0, pass_fds=(holding,))
    finally:
        os.close(read_end)
    try:
        yield ProcessGroup(leader=leader)
    finally:
        os.close(write_end)
        await leader.wait()
