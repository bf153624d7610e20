"""`python -m runyard_workers`: one worker process."""

import sys

import uvloop

from runyard import logs
from runyard.errors import StartError
from runyard.settings import Settings
from runyard_workers.main import run_worker


def main() -> None:
    try:
        settings = Settings.load()
        logs.configure("worker", settings.log_level, json=not settings.dev)
        uvloop.run(run_worker(settings))
    except StartError as error:
        print(f"error: {error}", file=sys.stderr)  # noqa: T201 - the one line a person reads
        sys.exit(2)


if __name__ == "__main__":
    main()
