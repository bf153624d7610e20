"""`make chaos`: a hundred runs while workers are killed with SIGKILL, and a table of what is true at the end.

Needs Postgres and Redis where the tests expect them (`python -m scripts.services` starts what is missing). The system
is a real one: two gateways, three workers; the model is a stand-in that refuses what the provider's API would refuse.
"""

import argparse
import asyncio
import secrets
import sys
import tempfile
from pathlib import Path

from tests.fault.chaos import Outcome, Plan, chaos
from tests.fault.crew import working
from tests.fault.gateways import starting_gateways
from tests.integration.stack import postgres_and_redis

LABEL_WIDTH = 34


async def show(plan: Plan) -> Outcome:
    with postgres_and_redis() as backing, tempfile.TemporaryDirectory(prefix="runyard-chaos-") as folder:
        async with starting_gateways(backing, Path(folder)) as stack, working(stack) as crew:
            outcome = await chaos(stack, crew, plan, tell=tell)
            print_table(outcome)
            return outcome


def tell(progress: str) -> None:
    print(progress, flush=True)


def print_table(outcome: Outcome) -> None:
    plan = outcome.plan
    rows = {
        "runs completed": f"{outcome.ends.get('completed', 0)} of {plan.runs}",
        "workers killed": f"{outcome.killed}",
        "take-overs": f"{outcome.take_overs}",
        "calls that must not be repeated": f"{outcome.once}, {outcome.interrupted} of them interrupted",
        "repeated calls": f"{outcome.repeated}",
        "invalid transcripts": f"{len(outcome.invalid_transcripts)}",
        "readers equal to the transcript": f"{plan.runs - len(outcome.unequal_readers)} of {plan.runs}",
        "reconnects of readers": f"{outcome.moves}",
        "found by runyard fsck": f"{len(outcome.unsound)}",
    }
    print("\n".join(["", *(f"{label:<{LABEL_WIDTH}}{value}" for label, value in rows.items())]), flush=True)
    for broken in (*outcome.invalid_transcripts, *outcome.unequal_readers, *outcome.unsound):
        print(f"  {broken}")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m scripts.chaos", description=__doc__)
    parser.add_argument("--seed", type=int, default=secrets.randbelow(1_000_000), help="what happens when")
    parser.add_argument("--runs", type=int, default=Plan.runs)
    parser.add_argument("--within-s", type=float, default=Plan.within_s, help="the time in which they begin")
    parser.add_argument("--kill-every-s", type=float, default=Plan.kill_every_s)
    plan = Plan(**vars(parser.parse_args()))
    tell(
        f"seed {plan.seed}: {plan.runs} runs begin within {plan.within_s:g} s; "
        f"one of {plan.workers} workers is killed every {plan.kill_every_s:g} s"
    )
    outcome = asyncio.run(show(plan))
    if outcome.faults:
        sys.exit(f"error: {', '.join(outcome.faults)}")


if __name__ == "__main__":
    main()
