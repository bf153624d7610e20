"""Who is claimed next, of any runs under any limits: what a few lines of Python say that look at every row."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest
import sqlalchemy as sa
from hypothesis import given, note
from hypothesis import strategies as st
from tests.contract.execution.worker import GUARD_S
from tests.contract.lifecycle.test_lifecycle import World, world_on
from tests.contract.store import states
from tests.hypothesis_profiles import search

from runyard.db import groups
from runyard.db.limits import NO_LIMITS, Limits
from runyard.db.tables import agent_inputs, agent_invocations, agent_messages, agent_runs
from runyard.ids import InvocationId, RunId, WorkerId
from runyard.lifecycle.creating import ZERO_COST, NewRun, new_run
from runyard.priorities import Priority, rank_of
from runyard.runs import RunStatus

AGENTS = ("researcher", "poet")


class Waits(NamedTuple):
    """A queued run."""

    queue: str
    agent: str
    tenant: str
    user: str
    priority: Priority
    minute: int


FLOOD = [Waits("default", "researcher", "acme", "ada", Priority.INTERACTIVE, 0)] * (groups.NEAR + 3)
"""At the head of a group, more than a claim looks at one by one, all of one user."""

ROWS = st.lists(
    st.builds(
        Waits,
        queue=st.sampled_from(["default", "bulk"]),
        agent=st.sampled_from(AGENTS),
        tenant=st.sampled_from(["acme", "initech"]),
        user=st.sampled_from(["ada", "bob", "cyd"]),
        priority=st.sampled_from(Priority),
        minute=st.integers(0, 90),  # an hour is between the classes
    ),
    min_size=1,
    max_size=14,
)
NUMBER = st.sampled_from([None, 1, 2])
LIMITS = st.just(NO_LIMITS) | st.builds(
    lambda user, tenant, agent: Limits(
        per_user=user, per_tenant=tenant, per_agent={} if agent is None else {"researcher": agent}
    ),
    NUMBER,
    NUMBER,
    NUMBER,
)


@dataclass(frozen=True, kw_only=True)
class Queued:
    id: str
    run: Waits

    @property
    def rank(self) -> int:
        return rank_of(self.run.priority, states.AT + 60_000 * self.run.minute)


def best(queued: Sequence[Queued], running: Sequence[Queued], limits: Limits) -> Queued | None:
    """The tenant with the fewest running runs, then the lowest rank, of those whom no limit keeps."""
    tenants = Counter(each.run.tenant for each in running)
    users = Counter((each.run.tenant, each.run.user) for each in running)
    agents = Counter(each.run.agent for each in running)

    def may_run(each: Queued) -> bool:
        return (
            (limits.per_tenant is None or tenants[each.run.tenant] < limits.per_tenant)
            and (limits.per_user is None or users[each.run.tenant, each.run.user] < limits.per_user)
            and (each.run.agent not in limits.per_agent or agents[each.run.agent] < limits.per_agent[each.run.agent])
        )

    allowed = filter(may_run, queued)
    return min(allowed, key=lambda each: (tenants[each.run.tenant], each.rank, each.id), default=None)


@pytest.mark.timeout(0)  # a long search takes its time
def test_the_best_is_claimed_whatever_waits(database_url: str) -> None:
    worker = states.registered(database_url)
    with world_on(database_url) as world:

        @search(examples=40)
        @given(rows=ROWS, flood=st.booleans(), limits=LIMITS, ends=st.lists(st.booleans(), min_size=12, max_size=12))
        def claims(rows: list[Waits], flood: bool, limits: Limits, ends: list[bool]) -> None:
            waiting = [*(FLOOD if flood else []), *rows]
            queued = [Queued(id=f"run_{number:03}", run=run) for number, run in enumerate(waiting)]
            world.runner.run(_play(world, worker, queued, limits, ends))

        claims()


async def _play(world: World, worker: WorkerId, queued: list[Queued], limits: Limits, ends: list[bool]) -> None:
    """Claims, and now and then the end of a run, until the throws are used up."""
    await world.database.write(_fill, queued, worker)
    running: list[Queued] = []
    for ends_first in ends:
        if ends_first and running:
            ended = running.pop(0)
            await world.database.write(_end, ended.id)
        expected = best(queued, running, limits)
        note(f"{len(running)} run, next is {expected}")
        async with asyncio.timeout(GUARD_S):
            found = await states.claim(
                world.database,
                worker,
                queues=["default", "bulk"],
                agents=dict.fromkeys(AGENTS, "v1"),
                limits=limits,
            )
        assert (found and found.run.id) == (expected and expected.id)
        if expected is not None:
            queued.remove(expected)
            running.append(expected)


async def _fill(connection: Any, queued: list[Queued], worker: WorkerId) -> None:
    for table in (agent_messages, agent_inputs, agent_invocations, agent_runs):
        await connection.execute(sa.delete(table))
    runs, invocations, inputs = [], [], []
    for each in queued:
        at = states.AT + 60_000 * each.run.minute
        new = NewRun(
            run_id=RunId(each.id),
            tenant_id=each.run.tenant,
            user_id=each.run.user,
            agent=each.run.agent,
            queue=each.run.queue,
            priority=each.run.priority,
            session_id=None,
            title=None,
            metadata=None,
            context=None,
            history=(),
            at=at,
        )
        runs.append(new_run(new, invocation_id=InvocationId(f"inv_{each.id}")))
        invocations.append(
            {
                "id": f"inv_{each.id}",
                "run_id": each.id,
                "stream_id": f"st_{each.id}",
                "request_id": "req",
                "status": RunStatus.QUEUED,
                "roles": [],
                "options": {},
                "steps": 0,
                "usage": {},
                "cost": ZERO_COST,
                "deaths": [],
                "stream_closed": False,
                "created_at": at,
            }
        )
        inputs.append(
            {
                "id": f"in_{each.id}",
                "run_id": each.id,
                "invocation_id": f"inv_{each.id}",
                "position": 1,
                "opens": True,
                "content": "go",
                "created_at": at,
            }
        )
    for table, rows in ((agent_runs, runs), (agent_invocations, invocations), (agent_inputs, inputs)):
        await connection.execute(sa.insert(table), rows)


async def _end(connection: Any, run_id: str) -> None:
    ended = sa.update(agent_runs).where(agent_runs.c.id == run_id)
    await connection.execute(ended.values(status=RunStatus.COMPLETED, worker_id=None))
