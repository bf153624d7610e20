"""What follows from a commit and holds no answer up: parts are told that may be away, and bound it by their limits."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import structlog

log = structlog.get_logger()


class FollowUps:
    """Whoever owns `tasks` waits at its end for those under way. What is lost is found by its row, by a worker."""

    def __init__(self, tasks: asyncio.TaskGroup) -> None:
        self._tasks = tasks

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        self._tasks.create_task(_guarded(work))


async def _guarded(work: Coroutine[Any, Any, None]) -> None:
    try:
        await work
    except Exception:
        # A fault of ours must not end the gateway with all its readers.
        log.exception("follow-up failed unexpectedly")
