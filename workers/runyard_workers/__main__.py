"""`python -m runyard_workers`: one worker process."""

import os
import sys

import uvloop

from runyard import logs, traces
from runyard.errors import StartError
from runyard.settings import Settings
from runyard_workers.main import run_worker

SWITCH_INTERVAL_S = 0.001
"""For so long a thread keeps the interpreter while others wait (by default 5 ms). Tools that compute in 32 threads make
each of the beat's dozen turns wait 32 times as long: on a quarter of a processor it came every 7 s instead of 4."""


def main() -> None:
    try:
        settings = Settings.load()
        logs.configure("worker", settings.log_level, json=not settings.dev)
        sys.setswitchinterval(SWITCH_INTERVAL_S)
        with traces.exporting("worker", os.environ):
            uvloop.run(run_worker(settings))
    except StartError as error:
        print(f"error: {error}", file=sys.stderr)  # noqa: T201 - the one line a person reads
        sys.exit(2)


if __name__ == "__main__":
    main()
