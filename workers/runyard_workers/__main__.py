"""`python -m runyard_workers`: one worker process."""

import asyncio
import os
import sys

import structlog
import uvloop

from runyard import logs, misspelt, traces
from runyard.errors import StartError
from runyard.settings import Settings
from runyard_workers.main import run_worker

SWITCH_INTERVAL_S = 0.001
"""How long a thread keeps the interpreter while others wait (Python's default is 5 ms). When tools compute in 32
threads, each of the beat's dozen turns waits 32 times as long: on a quarter of a processor the beat came every 7 s
instead of 4."""


def main() -> None:
    try:
        settings = Settings.load()
        logs.configure("worker", settings.log_level, json=not settings.dev)
        misspelt.warn(os.environ)
        sys.setswitchinterval(SWITCH_INTERVAL_S)
        with traces.exporting("worker", os.environ):
            uvloop.run(run_worker(settings))
    except asyncio.CancelledError:
        structlog.get_logger().info("worker left before it served")
    except StartError as error:
        print(f"error: {error}", file=sys.stderr)  # noqa: T201 - the one line a person reads
        sys.exit(2)


if __name__ == "__main__":
    main()
