"""What a test hears of itself, and how a worker dies in it."""

import asyncio


class ScriptError(AssertionError):
    """What the test has planned and what happened are not the same: the model's script, or a moment that never came."""


class WorkerCrashed(asyncio.CancelledError):
    """Goes through an author's code whose worker was told to die: a process that has ended runs nothing more."""
