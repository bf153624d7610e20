"""The process group of all that `runyard dev` starts. It dies with its supervisor, however that one dies."""

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator
from dataclasses import dataclass

LEADER = ("/bin/sh", "-c", "read _; kill -KILL 0")
"""Waits for the end of its input, then kills its whole group, itself included.

A shell, since it starts in a millisecond, is there on every POSIX system and shares no name with what it guards."""


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
    """A group of its own, out of the terminal's reach: Ctrl-C comes to the supervisor alone, which stops in order.

    The leader's input is a pipe that only this process holds the other end of. When this process ends, by SIGKILL too,
    the leader kills the group. `holding` is a file descriptor that the leader keeps open as long: a lock on it is free
    only when every member has been killed.
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
