"""The error of a test whose plan did not happen, and the exception with which a worker dies."""

import asyncio


class ScriptError(AssertionError):
    """What happened is not what the test planned: the model's script was not followed, or a moment never came."""


class WorkerCrashed(asyncio.CancelledError):
    """Ends the author's code in a worker that was told to die, since a dead process runs nothing more."""
