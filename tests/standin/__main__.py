"""`python -m tests.standin --port 0`: the stand-in as a process of its own.

Prints one line of JSON when it listens: `{"base_url": "http://127.0.0.1:..."}`. Where no script was posted it answers
with the workload that the request asks for. Ends on SIGTERM and SIGINT, and with `--until-stdin-closes` when whoever
started it is gone.
"""

import argparse
import asyncio
import json
import signal
import sys

import uvloop

from tests.standin.server import Standin
from tests.standin.workload import workload


async def serve(port: int, *, strict: bool, until_stdin_closes: bool) -> None:
    loop = asyncio.get_running_loop()
    over = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, over.set)
    if until_stdin_closes:
        reader = asyncio.StreamReader()
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        reading = asyncio.ensure_future(reader.read())
        reading.add_done_callback(lambda _: over.set())
    standin = Standin(strict=strict, otherwise=workload)
    await standin.start(port)
    sys.stdout.write(json.dumps({"base_url": standin.base_url}) + "\n")
    sys.stdout.flush()
    await over.wait()
    await standin.stop()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.standin", description=__doc__)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--lenient", action="store_true", help="judge as the API does, not stricter")
    parser.add_argument("--until-stdin-closes", action="store_true")
    arguments = parser.parse_args()
    uvloop.run(serve(arguments.port, strict=not arguments.lenient, until_stdin_closes=arguments.until_stdin_closes))


if __name__ == "__main__":
    main()
