"""What follows a commit without holding up its answer. It tells parts that may be away, and their timeouts bound it."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import structlog

log = structlog.get_logger()


class FollowUps:
    """When `tasks` ends, its owner waits for those under way. What gets lost, a worker finds by its row."""

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
