"""The signals that tell a process to leave."""

import asyncio
import signal

SIGNALS = (signal.SIGTERM, signal.SIGINT)


def cancelled_at_signals() -> None:
    """From now on each of them cancels the current task, until the loop is given another handler.

    For a process that does not serve yet and has nothing to hand over. Python's own handlers would not do: the first
    process of a container ignores SIGTERM.
    """
    task = asyncio.current_task()
    assert task is not None
    for number in SIGNALS:
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
