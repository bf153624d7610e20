"""The rows of a new turn, written together with the change to its run, in the transaction that locks or creates the
run.
"""

from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from runyard.db.inputs import adding, next_position
from runyard.db.records import Run
from runyard.db.tables import agent_invocations, agent_runs
from runyard.db.together import Insert, Update, Values, Write, write_together
from runyard.ids import InvocationId, RunId
from runyard.lifecycle.creating import NEW_RUN, NO_USAGE, ZERO_COST, new_run
from runyard.lifecycle.new_turn import NewTurn
from runyard.priorities import rank_of
from runyard.runs import RunEvent, RunStatus, after

_RUN_STEERED = Update(
    table=agent_runs, columns=("last_activity_at", "title", "metadata"), where=agent_runs.c.id == sa.bindparam("run")
)
_RUN_STOPPED = Update(
    table=agent_runs,
    columns=(*_RUN_STEERED.columns, "context", "cancel_requested", "queue", "priority"),
    where=_RUN_STEERED.where,
)
_RUN_CONTINUED = Update(
    table=agent_runs,
    columns=(*_RUN_STOPPED.columns, "status", "rank", "invocation_id", "error"),
    where=_RUN_STEERED.where,
)
_NEW_INVOCATION = Insert(
    table=agent_invocations,
    columns=(
        *("id", "run_id", "stream_id", "request_id", "status", "roles", "options", "steps", "usage", "cost", "deaths"),
        *("stream_closed", "created_at", "trace_context"),
    ),
)


async def _enqueue(connection: AsyncConnection, run: Run, turn: NewTurn, update: Update, **changes: Any) -> None:
    """Change the run, and add the invocation with its opening input."""
    position = await next_position(connection, run.id)
    context = run.context if turn.context is None else turn.context
    changed = (update, {"run": run.id, "context": context, **changes, **_described(run, turn)})
    await write_together(connection, changed, *_invocation_and_input(turn, run.id, position=position))


async def begin_turn(connection: AsyncConnection, run: Run, turn: NewTurn) -> None:
    await _enqueue(
        connection,
        run,
        turn,
        _RUN_CONTINUED,
        status=after(run.status, RunEvent.TURN),
        rank=rank_of(turn.priority, turn.at),
        queue=turn.queue,
        priority=turn.priority,
        invocation_id=turn.invocation_id,
        cancel_requested=False,
        error=None,
        last_activity_at=turn.at,
    )


async def stop_and_follow(connection: AsyncConnection, run: Run, turn: NewTurn) -> None:
    """Ask the current invocation to stop, and queue this call behind it. Waiting steering is folded into the current
    invocation as it stops.
    """
    await _enqueue(
        connection,
        run,
        turn,
        _RUN_STOPPED,
        cancel_requested=True,
        queue=turn.queue,
        priority=turn.priority,
        last_activity_at=turn.at,
    )


async def add_steering(connection: AsyncConnection, run: Run, turn: NewTurn, invocation_id: InvocationId) -> None:
    """Add the call's input to an existing invocation."""
    position = await next_position(connection, run.id)
    change = {"run": run.id, "last_activity_at": turn.at, **_described(run, turn)}
    added = adding(run.id, invocation_id, turn.input_id, turn.content, position=position, opens=False, at=turn.at)
    await write_together(connection, (_RUN_STEERED, change), added)


async def create_run(connection: AsyncConnection, turn: NewTurn) -> bool:
    """Insert the run with its invocation and input. False: the run exists already, or its session has one."""
    run = new_run(turn, invocation_id=turn.invocation_id)
    return await write_together(connection, (NEW_RUN, run), *_invocation_and_input(turn, turn.run_id, position=1))


def _invocation_and_input(turn: NewTurn, run_id: RunId, *, position: int) -> list[tuple[Write, Values]]:
    invocation = {
        "id": turn.invocation_id,
        "run_id": run_id,
        "stream_id": turn.stream_id,
        "request_id": turn.request_id,
        "status": RunStatus.QUEUED,
        "roles": list(turn.roles),
        "options": turn.options,
        "steps": 0,
        "usage": NO_USAGE,
        "cost": ZERO_COST,
        "deaths": [],
        "stream_closed": False,
        "created_at": turn.at,
        "trace_context": turn.trace_context,
    }
    opening = adding(run_id, turn.invocation_id, turn.input_id, turn.content, position=position, opens=True, at=turn.at)
    return [(_NEW_INVOCATION, invocation), opening]


def _described(run: Run, turn: NewTurn) -> dict[str, Any]:
    """What a call sets on the run itself, even if its input only steers."""
    return {
        "title": run.title if turn.title is None else turn.title,
        "metadata": run.metadata if turn.metadata is None else turn.metadata,
    }
