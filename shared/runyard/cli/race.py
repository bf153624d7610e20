"""Waits for the first of several things to happen."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


async def race(*coroutines: Coroutine[Any, Any, T]) -> T:
    """The result of the first to end, or its exception; the others are cancelled, and have ended when this returns.

    If several end in the same turn of the loop, the leftmost counts.
    """
    tasks = [asyncio.create_task(coroutine) for coroutine in coroutines]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        return next(task for task in tasks if task in done).result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
