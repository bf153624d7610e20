"""Work that follows a commit in the background, so that the answer does not wait: telling Redis, for example."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import structlog

log = structlog.get_logger()


class FollowUps:
    """Runs in `tasks`, whose owner waits for it at the end. If it is lost, a worker finds the row and does it."""

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
