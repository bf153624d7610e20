"""Workers are killed one after another under a hundred runs: `make chaos` in small, on the fleet of the other tests."""

import secrets

import pytest
from tests.fault.chaos import Plan, chaos
from tests.fault.conftest import on_redis
from tests.fault.crew import Crew
from tests.integration.stack import Stack

pytestmark = [pytest.mark.anyio, on_redis, pytest.mark.timeout(300)]

WITHIN_S = 6.0
KILLS, KILL_EVERY_S = 2, 2.5


async def test_a_hundred_runs_outlive_worker_after_worker(stack: Stack, crew: Crew) -> None:
    plan = Plan(seed=secrets.randbelow(1_000_000), within_s=WITHIN_S, kills=KILLS, kill_every_s=KILL_EVERY_S)
    print(f"seed {plan.seed}")  # noqa: T201 - pytest shows it with what failed
    outcome = await chaos(stack, crew, plan, tell=print)
    assert outcome.faults == [], outcome
    assert outcome.killed >= 1, "how many the machine decides: the next one waits until a replacement serves"
    assert outcome.take_overs >= 1
    assert outcome.once == 2 * plan.runs
