"""A worker's death: who notices it puts its runs back, in one transaction. Synchronous: for the beat's thread."""

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from runyard.db.claims import GivenBack
from runyard.db.tables import RUNNING, agent_calls, agent_invocations, agent_runs, workers
from runyard.ids import WorkerId
from runyard.runs import CallState, RunEvent, RunStatus, after

DEATHS_MAX = 10
"""Of workers that ran one invocation; then it fails as RUN_CRASHED."""

TOOL_DEATHS_MAX = 3
"""Of workers while a call of the same tool was started, on one invocation."""

NEIGHBOURS = 8

_after_me = (
    sa.select(workers.c.id, workers.c.beat)
    .where(workers.c.id > sa.bindparam("after"))
    .order_by(workers.c.id)
    .limit(NEIGHBOURS)
)
_runs_of = sa.select(agent_runs).where(agent_runs.c.worker_id == sa.bindparam("worker"), agent_runs.c.status == RUNNING)


def neighbours(connection: sa.Connection, after_id: str) -> list[tuple[WorkerId, int]]:
    """Workers whose ids follow, with their beats; at most 8. The ring begins again after "" ."""
    return [(row.id, row.beat) for row in connection.execute(_after_me, {"after": after_id})]


def bury(connection: sa.Connection, worker_id: WorkerId, seen_beat: int) -> list[GivenBack] | None:
    """Put the runs of a dead worker back, count the death on each, and delete its row.

    None: its beat is not the one that was seen, so it lives, or somebody else buried it.
    """
    dead = sa.select(workers.c.id).where(workers.c.id == worker_id, workers.c.beat == seen_beat).with_for_update()
    if connection.execute(dead).one_or_none() is None:
        return None
    given_back = []
    for run in connection.execute(_runs_of.with_for_update(), {"worker": worker_id}).all():
        connection.execute(
            sa.update(agent_runs)
            .where(agent_runs.c.id == run.id)
            .values(
                status=after(RunStatus.RUNNING, RunEvent.GIVE_BACK),
                worker_id=None,
                generation=agent_runs.c.generation + 1,
            )
        )
        _count_death(connection, run)
        given_back.append(GivenBack(run_id=run.id, invocation_id=run.invocation_id, queue=run.queue))
    connection.execute(sa.delete(workers).where(workers.c.id == worker_id))
    return given_back


def crash_reason(deaths: Sequence[list[str]]) -> str | None:
    """Why an invocation must not be tried again; None: it may.

    `deaths`: for each, the names of the tools whose calls were started, as `agent_invocations.deaths` holds them.
    """
    for tool in {name for started in deaths for name in started}:
        if sum(tool in started for started in deaths) >= TOOL_DEATHS_MAX:
            return f"{TOOL_DEATHS_MAX} workers died while the tool {tool!r} ran"
    if len(deaths) >= DEATHS_MAX:
        return f"{DEATHS_MAX} workers died while they executed the run"
    return None


def _count_death(connection: sa.Connection, run: Any) -> None:
    started = connection.execute(
        sa.select(agent_calls.c.name)
        .where(
            agent_calls.c.run_id == run.id,
            agent_calls.c.invocation_id == run.invocation_id,
            agent_calls.c.assistant_seq == run.last_seq,
            agent_calls.c.state == CallState.STARTED,
        )
        .distinct()
    )
    invocation = agent_invocations.c.id == run.invocation_id
    deaths = connection.execute(sa.select(agent_invocations.c.deaths).where(invocation)).scalar_one()
    connection.execute(
        sa.update(agent_invocations)
        .where(invocation)
        .values(status=RunStatus.QUEUED, deaths=[*deaths, sorted(started.scalars())])
    )
