"""`python -m runyard_workers`: one worker process."""

import asyncio
import os
import sys
import threading

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

LEFT_BEHIND_S = 2.0
"""How long threads and tasks that authors' code has left behind may go on when the worker has left. Python would wait
for them without end."""

log = structlog.get_logger()


def main() -> None:
    try:
        settings = Settings.load()
        logs.configure("worker", settings.log_level, json=not settings.dev)
        misspelt.warn(os.environ)
        sys.setswitchinterval(SWITCH_INTERVAL_S)
        sys.exit(uvloop.run(_work(settings)))
    except StartError as error:
        sys.exit(_reported(error))


async def _work(settings: Settings) -> int:
    """The exit code. The process ends with it soon, whatever it still waits for."""
    code = await _exit_code(settings)
    end = threading.Timer(LEFT_BEHIND_S, os._exit, [code])
    end.daemon = True
    end.start()
    return code


async def _exit_code(settings: Settings) -> int:
    try:
        with traces.exporting("worker", os.environ):
            await run_worker(settings)
    except StartError as error:
        return _reported(error)
    except asyncio.CancelledError:
        log.info("worker left before it served")
    except Exception:
        log.exception("worker failed unexpectedly")
        return 1
    return 0


def _reported(error: StartError) -> int:
    """Print why the worker cannot start; returns the exit code."""
    print(f"error: {error}", file=sys.stderr, flush=True)  # noqa: T201 - the one line a person reads
    return 2


if __name__ == "__main__":
    main()
