"""`python -m runyard_gateway`: one gateway process."""

import asyncio
import os
import sys

import structlog
import uvloop

from runyard import logs, misspelt, traces
from runyard.errors import StartError
from runyard.settings import Settings
from runyard_gateway.app import run_gateway


def main() -> None:
    try:
        settings = Settings.load()
        logs.configure("gateway", settings.log_level, json=not settings.dev)
        misspelt.warn(os.environ)
        with traces.exporting("gateway", os.environ):
            uvloop.run(run_gateway(settings))
    except asyncio.CancelledError:
        structlog.get_logger().info("gateway left before it served")
    except StartError as error:
        print(f"error: {error}", file=sys.stderr)  # noqa: T201 - the one line a person reads
        sys.exit(2)


if __name__ == "__main__":
    main()
