"""`python -m benchmarks [section ...] [--quick] [--json FILE]`: every figure beside its floor of the same run.

Needs Postgres, Redis and RabbitMQ where the tests expect them (`python -m scripts.services` starts what is missing).
Timing depends on the machine and on what else it does: read the ratios.
"""

import argparse
import os
from collections.abc import Awaitable, Callable
from pathlib import Path

import uvloop

from benchmarks import cancelling, claims, fan_out, first_token, handover, long_stream, polling, recovery, throughput
from benchmarks.report import Section, as_json, print_table

SECTIONS: dict[str, Callable[..., Awaitable[Section]]] = {
    "first-token": first_token.measure,
    "long-stream": long_stream.measure,
    "fan-out": fan_out.measure,
    "throughput": throughput.measure,
    "workers": throughput.measure_workers,
    "claims": claims.measure,
    "cancel": cancelling.measure,
    "hand-over": handover.measure,
    "recovery": recovery.measure,
    "polling": polling.measure,
}


async def measure(names: list[str], *, quick: bool) -> list[Section]:
    sections = []
    for name in names:
        section = await SECTIONS[name](quick=quick)
        print_table(section)
        sections.append(section)
    return sections


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("sections", nargs="*", metavar="section", help=f"of {', '.join(SECTIONS)}; all by default")
    parser.add_argument("--quick", action="store_true", help="fewer repeats")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there too")
    arguments = parser.parse_args()
    unknown = set(arguments.sections) - SECTIONS.keys()
    if unknown:
        parser.error(f"no such section: {', '.join(sorted(unknown))}")
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} before", flush=True)
    sections = uvloop.run(measure(arguments.sections or list(SECTIONS), quick=arguments.quick))
    if arguments.json is not None:
        arguments.json.write_text(as_json(sections) + "\n")


if __name__ == "__main__":
    main()
