"""Accepting a call: one transaction that creates or continues a run. Once it is committed the run is never lost."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from runyard.db.idempotency import CallKey, KeyedCall, bind_key, take_key
from runyard.db.inputs import adding, check_room, next_position, replacement_of, waiting_inputs
from runyard.db.locks import lock_owned
from runyard.db.records import Input, Run
from runyard.db.scope import Scope, Scoped
from runyard.db.tables import agent_inputs, agent_invocations, agent_runs
from runyard.db.together import Insert, Update, Values, Write, write_together
from runyard.errors import AgentMismatch, RunBusy, RunNotFound
from runyard.history import HistoryMessage
from runyard.ids import InputId, InvocationId, RequestId, RunId, StreamId
from runyard.lifecycle.cancelling import settle_queued
from runyard.lifecycle.creating import NEW_RUN, ZERO_COST, lock_session, new_run
from runyard.lifecycle.editing import check_fits, store_history
from runyard.lifecycle.endings import Ending
from runyard.priorities import Priority, rank_of
from runyard.runs import BUSY, RunEvent, RunStatus, after

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
_call_of_key = Scoped(
    sa.select(agent_invocations.c.stream_id, agent_invocations.c.status, agent_runs.c.session_id)
    .join(agent_runs)
    .where(agent_invocations.c.id == sa.bindparam("invocation"))
)


@dataclass(frozen=True, kw_only=True, slots=True)
class NewTurn:
    """A checked call, its text clean (`runyard.text`).

    Its ids are made by whoever accepts it, so that after a commit of unknown outcome it can be accepted again.
    """

    tenant_id: str
    user_id: str
    """Whom the run belongs to that it creates, and whose session it names."""

    scope: Scope
    """The runs that `continues` may name."""

    agent: str
    queue: str
    priority: Priority
    content: str | list[dict[str, Any]]
    roles: tuple[str, ...]
    options: dict[str, Any]
    run_id: RunId
    invocation_id: InvocationId
    input_id: InputId
    stream_id: StreamId
    request_id: RequestId
    at: int
    continues: str | None = None
    if_busy: Literal["steer", "reject", "cancel"] = "steer"
    session_id: str | None = None
    title: str | None = None
    metadata: dict[str, Any] | None = None
    context: dict[str, Any] | None = None
    """Replaces the run's, unless this is input that steers: what runs has begun with the one that it has."""

    history: tuple[HistoryMessage, ...] | None = None
    """What was said elsewhere before `content`; with it the two are checked to fit behind the transcript."""

    call_key: CallKey | None = None
    trace_context: dict[str, str] | None = None
    """Of the request that brings it (`runyard.traces.carried`)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Accepted:
    """Where the input went: into a new invocation, or to one that is there (`queued`: how many inputs steer it so).

    `status`: of that invocation. `waits_for_end`: it is next when what runs, and is asked to stop, has ended.
    `repeated`: nothing was stored; this is what became of an earlier call with the same key.
    """

    run_id: RunId
    invocation_id: InvocationId
    input_id: InputId
    stream_id: StreamId
    session_id: str | None
    status: RunStatus = RunStatus.QUEUED
    queued: int | None = None
    waits_for_end: bool = False
    repeated: bool = False
    ending: Ending | None = None
    """Of the stream of a queued call that this one replaced: whoever accepts owes it."""

    @property
    def is_steering(self) -> bool:
        return self.queued is not None


async def accept_turn(connection: AsyncConnection, turn: NewTurn) -> Accepted:
    """Create a run, or continue or steer the one that `continues` or `session_id` names.

    A run in progress is steered; with `if_busy` "reject" the call is refused, with "cancel" what runs is stopped and
    this call takes its place. What is sent to a run that is being stopped is for the turn after that.

    After a commit of unknown outcome, accept the same turn again: this waits until the first transaction has ended,
    finds what it committed, and accepts the turn only if it committed nothing.

    Raises:
        RunNotFound: `continues` names no run of this caller, or the earlier call's run is none any more.
        AgentMismatch: the run belongs to another agent.
        RunBusy: an invocation is in progress, and `if_busy` is "reject".
        InputQueueFull: too much steering waits already.
        InvalidArgs: the history does not fit behind the transcript.
        IdempotencyMismatch: the call's key belongs to an earlier one that said something else.
    """
    if turn.call_key is None:
        return await _accept(connection, turn)
    owner = {"tenant_id": turn.tenant_id, "user_id": turn.user_id}
    keyed = KeyedCall(run_id=turn.run_id, invocation_id=turn.invocation_id, input_id=turn.input_id, queued=None)
    earlier = await take_key(connection, turn.call_key, keyed, at=turn.at, **owner)
    if earlier is not None:
        return await _repeated(connection, earlier, turn.scope)
    accepted = await _accept(connection, turn)
    went = replace(keyed, run_id=accepted.run_id, invocation_id=accepted.invocation_id, queued=accepted.queued)
    if went != keyed:
        await bind_key(connection, turn.call_key, went, **owner)
    return accepted


async def _accept(connection: AsyncConnection, turn: NewTurn) -> Accepted:
    run = await _run_to_continue(connection, turn)
    if run is None:
        if turn.history is not None:
            await _store_history(connection, await _created(connection, turn), turn, turn.history)
        return _accepted(turn, turn.run_id, turn.session_id)
    earlier = await _accepted_before(connection, run, turn)
    if earlier is not None:
        return earlier
    if run.agent != turn.agent:
        raise AgentMismatch(f"The run belongs to agent {run.agent}", runId=run.id, agent=run.agent)
    if run.status in BUSY:
        return await _accept_busy(connection, run, turn)
    if turn.history is not None:
        await _store_history(connection, run, turn, turn.history)
    await _continue(connection, run, turn)
    return _accepted(turn, run.id, run.session_id)


def _accepted(turn: NewTurn, run_id: RunId, session_id: str | None) -> Accepted:
    return Accepted(
        run_id=run_id,
        invocation_id=turn.invocation_id,
        input_id=turn.input_id,
        stream_id=turn.stream_id,
        session_id=session_id,
    )


async def _repeated(connection: AsyncConnection, earlier: KeyedCall, scope: Scope) -> Accepted:
    row = (await _call_of_key.execute(connection, scope, invocation=earlier.invocation_id)).one_or_none()
    if row is None:
        raise RunNotFound("Run not found", runId=earlier.run_id)
    return Accepted(
        run_id=earlier.run_id,
        invocation_id=earlier.invocation_id,
        input_id=earlier.input_id,
        stream_id=row.stream_id,
        session_id=row.session_id,
        status=RunStatus(row.status),
        queued=earlier.queued,
        repeated=True,
    )


async def _accept_busy(connection: AsyncConnection, run: Run, turn: NewTurn) -> Accepted:
    if turn.history is not None:
        raise RunBusy("The run is busy: messages are for one that is not", runId=run.id, status=run.status)
    match turn.if_busy:
        case "reject":
            raise RunBusy("The run is busy with another call", runId=run.id, status=run.status)
        case "cancel" if run.status is RunStatus.QUEUED:
            settled = await settle_queued(connection, run, at=turn.at)
            if settled.status in BUSY:
                raise _replaced_already(run)
            await _continue(connection, replace(run, status=settled.status), turn)
            return replace(_accepted(turn, run.id, run.session_id), ending=settled.ending)
        case "cancel":
            if replacement_of(await waiting_inputs(connection, run.id), run.newest_invocation) is not None:
                raise _replaced_already(run)
            return await _replace(connection, run, turn)
        case "steer" if run.cancel_requested:
            waiting = await waiting_inputs(connection, run.id)
            replacement = replacement_of(waiting, run.newest_invocation)
            if replacement is None:
                return await _replace(connection, run, turn)
            return await _steer(connection, run, turn, replacement.invocation_id, waiting)
        case "steer":
            waiting = await waiting_inputs(connection, run.id)
            return await _steer(connection, run, turn, run.newest_invocation, waiting)


async def _steer(
    connection: AsyncConnection, run: Run, turn: NewTurn, invocation_id: InvocationId, waiting: Sequence[Input]
) -> Accepted:
    steering = [item for item in waiting if not item.opens]
    check_room(steering, turn.content)
    position = await next_position(connection, run.id)
    change = {"run": run.id, "last_activity_at": turn.at, **_described(run, turn)}
    added = adding(run.id, invocation_id, turn.input_id, turn.content, position=position, opens=False, at=turn.at)
    await write_together(connection, (_RUN_STEERED, change), added)
    return await _steering(connection, run, turn, invocation_id, queued=len(steering) + 1)


async def _steering(
    connection: AsyncConnection, run: Run, turn: NewTurn, invocation_id: InvocationId, *, queued: int
) -> Accepted:
    statement = sa.select(agent_invocations.c.stream_id, agent_invocations.c.status).where(
        agent_invocations.c.id == invocation_id
    )
    row = (await connection.execute(statement)).one()
    return Accepted(
        run_id=run.id,
        invocation_id=invocation_id,
        input_id=turn.input_id,
        stream_id=row.stream_id,
        session_id=run.session_id,
        status=RunStatus(row.status),
        queued=queued,
    )


async def _replace(connection: AsyncConnection, run: Run, turn: NewTurn) -> Accepted:
    """Stop what runs; this call is next. Steering that waits is kept: what runs folds it as it stops."""
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
    return replace(_accepted(turn, run.id, run.session_id), waits_for_end=True)


def _replaced_already(run: Run) -> RunBusy:
    return RunBusy("Another call waits to take the place of what runs", runId=run.id, status=run.status)


async def _enqueue(connection: AsyncConnection, run: Run, turn: NewTurn, update: Update, **changes: Any) -> None:
    """Change the run, and add the invocation with its opening input."""
    position = await next_position(connection, run.id)
    context = run.context if turn.context is None else turn.context
    changed = (update, {"run": run.id, "context": context, **changes, **_described(run, turn)})
    await write_together(connection, changed, *_invocation_and_input(turn, run.id, position=position))


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
        "usage": {},
        "cost": ZERO_COST,
        "deaths": [],
        "stream_closed": False,
        "created_at": turn.at,
        "trace_context": turn.trace_context,
    }
    opening = adding(run_id, turn.invocation_id, turn.input_id, turn.content, position=position, opens=True, at=turn.at)
    return [(_NEW_INVOCATION, invocation), opening]


async def _accepted_before(connection: AsyncConnection, run: Run, turn: NewTurn) -> Accepted | None:
    """What an earlier try of unknown outcome committed."""
    statement = sa.select(agent_inputs.c.invocation_id).where(agent_inputs.c.id == turn.input_id)
    invocation_id = (await connection.execute(statement)).scalar_one_or_none()
    if invocation_id is None:
        return None
    if invocation_id == turn.invocation_id:
        waits = run.status in BUSY and run.invocation_id != invocation_id
        return replace(_accepted(turn, run.id, run.session_id), waits_for_end=waits)
    waiting = await waiting_inputs(connection, run.id)
    return await _steering(connection, run, turn, invocation_id, queued=sum(not item.opens for item in waiting))


async def _run_to_continue(connection: AsyncConnection, turn: NewTurn) -> Run | None:
    """The run, locked; None when this call created it, with all that belongs to it."""
    if turn.continues is not None:
        run = await lock_owned(connection, turn.continues, turn.scope)
        if run is None:
            raise RunNotFound("Run not found", runId=turn.continues)
        return run
    if turn.session_id is not None:
        run = await _lock_session(connection, turn)
        if run is not None:
            return run
    if await _create(connection, turn):
        return None
    # Another call created the session between the two statements, or an earlier try the run: the insert has awaited
    # its commit.
    if turn.session_id is None:
        run = await lock_owned(connection, turn.run_id, Scope.of_user(turn.tenant_id, turn.user_id))
    else:
        run = await _lock_session(connection, turn)
    assert run is not None
    return run


async def _lock_session(connection: AsyncConnection, turn: NewTurn) -> Run | None:
    assert turn.session_id is not None
    return await lock_session(
        connection,
        tenant_id=turn.tenant_id,
        user_id=turn.user_id,
        agent=turn.agent,
        session_id=turn.session_id,
    )


async def _create(connection: AsyncConnection, turn: NewTurn) -> bool:
    """Whether the run was inserted, with its invocation and input: not when the run or its session exists."""
    run = new_run(
        run_id=turn.run_id,
        tenant_id=turn.tenant_id,
        user_id=turn.user_id,
        agent=turn.agent,
        queue=turn.queue,
        priority=turn.priority,
        session_id=turn.session_id,
        title=turn.title,
        metadata=turn.metadata,
        context=turn.context,
        invocation_id=turn.invocation_id,
        at=turn.at,
    )
    return await write_together(connection, (NEW_RUN, run), *_invocation_and_input(turn, turn.run_id, position=1))


async def _created(connection: AsyncConnection, turn: NewTurn) -> Run:
    run = await lock_owned(connection, turn.run_id, Scope.of_user(turn.tenant_id, turn.user_id))
    assert run is not None, "this transaction created it"
    return run


async def _store_history(
    connection: AsyncConnection, run: Run, turn: NewTurn, history: Sequence[HistoryMessage]
) -> None:
    await check_fits(connection, run, [*history, HistoryMessage(role="user", content=turn.content)])
    await store_history(connection, run, history, at=turn.at)


async def _continue(connection: AsyncConnection, run: Run, turn: NewTurn) -> None:
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


def _described(run: Run, turn: NewTurn) -> dict[str, Any]:
    """What a call says of the run, whatever becomes of its input."""
    return {
        "title": run.title if turn.title is None else turn.title,
        "metadata": run.metadata if turn.metadata is None else turn.metadata,
    }
