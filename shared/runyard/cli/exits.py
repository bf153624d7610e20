"""The exit codes of the commands that call a gateway (docs/cli.md)."""

from typing import Final

DONE: Final = 0  # the run completed; or what was asked for was done
FAILED: Final = 1  # the run failed
REFUSED: Final = 2  # wrong usage, no gateway there, or it refuses
CANCELLED: Final = 3  # the run was cancelled
INTERRUPTED: Final = 130  # Ctrl-C, as shells have it: 128 + SIGINT
UNREAD: Final = 141  # the reader of the output has left: 128 + SIGPIPE

_OF_RUNS = {"completed": DONE, "cancelled": CANCELLED}


def of_run(status: str) -> int:
    return _OF_RUNS.get(status, FAILED)
