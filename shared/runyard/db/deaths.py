"""A worker's death: the worker that notices it puts the dead worker's runs back into the queue, in one transaction.

Synchronous, for the beat's thread.
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from runyard.clock import now_ms
from runyard.db.claims import GivenBack
from runyard.db.tables import RUNNING, agent_calls, agent_invocations, agent_runs, workers
from runyard.ids import WorkerId
from runyard.runs import CallState, RunEvent, RunStatus, after

DEATHS_MAX = 10
"""After so many deaths of workers that ran it, an invocation fails as RUN_CRASHED."""

TOOL_DEATHS_MAX = 3
"""It also fails after so many deaths while the same tool ran, if the tool never returned in between."""

NEIGHBOURS = 8

_after_me = (
    sa.select(workers.c.id, workers.c.beat)
    .where(workers.c.id > sa.bindparam("after"))
    .order_by(workers.c.id)
    .limit(NEIGHBOURS)
)
_is_theirs = sa.and_(agent_runs.c.worker_id == sa.bindparam("worker"), agent_runs.c.status == RUNNING)
_runs_of = (
    sa.select(
        agent_runs.c.id,
        agent_runs.c.invocation_id,
        agent_runs.c.queue,
        agent_runs.c.cancel_requested,
        agent_invocations.c.deaths,
    )
    .join(agent_invocations, agent_invocations.c.id == agent_runs.c.invocation_id)
    .where(_is_theirs)
    .with_for_update(of=agent_runs)
)
_started_tools_of = (
    sa.select(agent_calls.c.run_id, agent_calls.c.name)
    .join(
        agent_runs,
        sa.and_(agent_runs.c.id == agent_calls.c.run_id, agent_runs.c.last_seq == agent_calls.c.assistant_seq),
    )
    .where(
        _is_theirs,
        agent_calls.c.invocation_id == agent_runs.c.invocation_id,
        agent_calls.c.state == CallState.STARTED,
    )
    .distinct()
)
_give_back = (
    sa.update(agent_runs)
    .where(_is_theirs)
    .values(
        status=after(RunStatus.RUNNING, RunEvent.GIVE_BACK),
        worker_id=None,
        generation=agent_runs.c.generation + 1,
        requeued_at=sa.bindparam("at"),
    )
)
_count_death = sa.update(agent_invocations).where(agent_invocations.c.id == sa.bindparam("invocation"))


def neighbours(connection: sa.Connection, after_id: str) -> list[tuple[WorkerId, int]]:
    """The next `NEIGHBOURS` workers in the order of ids, with their beats. After the last one, ask again with ""."""
    return [(row.id, row.beat) for row in connection.execute(_after_me, {"after": after_id})]


def bury(connection: sa.Connection, worker_id: WorkerId, seen_beat: int) -> list[GivenBack] | None:
    """Put the runs of a dead worker back into the queue, count the death on each, and delete the worker's row. The
    number of statements does not depend on the number of runs.

    None: the beat is not the one that was seen any more. The worker lives, or another one has buried it.
    """
    dead = sa.select(workers.c.id).where(workers.c.id == worker_id, workers.c.beat == seen_beat).with_for_update()
    if connection.execute(dead).one_or_none() is None:
        return None
    # The claims that name this worker have ended, and no new one can: they need its row.
    runs = connection.execute(_runs_of, {"worker": worker_id}).all()
    if runs:
        _count_deaths(connection, worker_id, runs)
        connection.execute(_give_back, {"worker": worker_id, "at": now_ms()})
    connection.execute(sa.delete(workers).where(workers.c.id == worker_id))
    return [
        GivenBack(
            run_id=run.id, invocation_id=run.invocation_id, queue=run.queue, cancel_requested=run.cancel_requested
        )
        for run in runs
    ]


def crash_reason(deaths: Sequence[list[str]]) -> str | None:
    """Why an invocation must not be tried again. None: it may be.

    `deaths`: for each death the tools whose calls had started, as in `agent_invocations.deaths`.
    """
    tools = sorted({name for started in deaths for name in started})
    deadly = [repr(tool) for tool in tools if sum(tool in started for started in deaths) >= TOOL_DEATHS_MAX]
    if deadly:
        named = f"tool {deadly[0]}" if len(deadly) == 1 else f"tools {' and '.join(deadly)}"
        return f"{TOOL_DEATHS_MAX} workers died while the {named} ran"
    if len(deaths) >= DEATHS_MAX:
        return f"{DEATHS_MAX} workers died while they executed the run"
    return None


def _count_deaths(connection: sa.Connection, worker_id: WorkerId, runs: Sequence[Any]) -> None:
    started = defaultdict(list)
    for run_id, tool in connection.execute(_started_tools_of, {"worker": worker_id}):
        started[run_id].append(tool)
    connection.execute(
        _count_death,
        [
            {
                "invocation": run.invocation_id,
                "status": RunStatus.QUEUED,
                "deaths": [*run.deaths, sorted(started[run.id])],
            }
            for run in runs
        ],
    )
