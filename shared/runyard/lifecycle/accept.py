"""Accepting a call: one transaction that creates or continues a run. Once it is committed the run is never lost."""

from collections.abc import Sequence
from dataclasses import replace

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from runyard.db.engine import Database
from runyard.db.idempotency import KeyedCall, bind_key, take_key
from runyard.db.inputs import check_room, replacement_of, waiting_inputs
from runyard.db.locks import lock_owned
from runyard.db.records import Input, Run
from runyard.db.scope import Scope, Scoped
from runyard.db.tables import agent_inputs, agent_invocations, agent_runs
from runyard.errors import AgentMismatch, RunBusy, RunNotFound
from runyard.history import HistoryMessage
from runyard.ids import InvocationId, RunId
from runyard.lifecycle.cancelling import settle_queued
from runyard.lifecycle.creating import lock_session
from runyard.lifecycle.editing import check_fits, store_history
from runyard.lifecycle.enqueuing import add_steering, begin_turn, create_run, stop_and_follow
from runyard.lifecycle.new_turn import Accepted, NewTurn
from runyard.runs import BUSY, RunStatus

_call_of_key = Scoped(
    sa.select(agent_invocations.c.stream_id, agent_invocations.c.status, agent_runs.c.session_id)
    .join(agent_runs)
    .where(agent_invocations.c.id == sa.bindparam("invocation"))
)


async def commit_turn(database: Database, turn: NewTurn) -> Accepted:
    """Run `accept_turn` and commit it. A call that depends on nothing stored creates its run in one statement.

    Raises:
        CommitUnknown, StoreUnavailable: see `Database.write`.
        RunNotFound, AgentMismatch, RunBusy, InputQueueFull, InvalidArgs, IdempotencyMismatch: see `accept_turn`.
    """
    if turn.creates_run and await database.write_at_once(create_run, turn):
        return _accepted(turn, turn.run_id, None)
    return await database.write(accept_turn, turn)


async def accept_turn(connection: AsyncConnection, turn: NewTurn) -> Accepted:
    """Create a run, or continue or steer the one that `continues` or `session_id` names.

    A run in progress is steered. With `if_busy` "reject" the call is refused instead. With "cancel" the current
    invocation is stopped, and this call takes its place. Input for a run that is being stopped waits for the turn that
    comes after.

    After a commit of unknown outcome, accept the same turn again: this waits until the first transaction has ended,
    and accepts the turn only if that one committed nothing.

    Raises:
        RunNotFound: `continues` names no run of this caller, or the run of the earlier call with this key is gone.
        AgentMismatch: the run belongs to another agent.
        RunBusy: an invocation is in progress, and `if_busy` is "reject".
        InputQueueFull: too much steering is waiting already.
        InvalidArgs: the history cannot follow the transcript.
        IdempotencyMismatch: an earlier call with another content used the key.
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
    await begin_turn(connection, run, turn)
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
        raise RunNotFound("The call with this Idempotency-Key was cleared", runId=earlier.run_id)
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
        raise RunBusy("The run is busy: `messages` need a run that is not", runId=run.id, status=run.status)
    match turn.if_busy:
        case "reject":
            raise RunBusy("The run is busy with another call", runId=run.id, status=run.status)
        case "cancel" if run.status is RunStatus.QUEUED:
            settled = await settle_queued(connection, run, at=turn.at)
            if settled.status in BUSY:
                raise _replaced_already(run)
            await begin_turn(connection, replace(run, status=settled.status), turn)
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
    await add_steering(connection, run, turn, invocation_id)
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
    await stop_and_follow(connection, run, turn)
    return replace(_accepted(turn, run.id, run.session_id), waits_for_end=True)


def _replaced_already(run: Run) -> RunBusy:
    return RunBusy("Another call waits to take the place of what runs", runId=run.id, status=run.status)


async def _accepted_before(connection: AsyncConnection, run: Run, turn: NewTurn) -> Accepted | None:
    """What an earlier try of unknown outcome has committed; None: nothing."""
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
    """Lock the run to continue. None: there was none, and this call has created it, with its invocation and input."""
    if turn.continues is not None:
        run = await lock_owned(connection, turn.continues, turn.scope)
        if run is None:
            raise RunNotFound("Run not found", runId=turn.continues)
        return run
    if turn.session_id is not None:
        run = await lock_session(connection, turn)
        if run is not None:
            return run
    if await create_run(connection, turn):
        return None
    # Between the two statements another call created the session, or an earlier try created the run. The insert waited
    # for that commit.
    if turn.session_id is None:
        run = await lock_owned(connection, turn.run_id, Scope.of_user(turn.tenant_id, turn.user_id))
    else:
        run = await lock_session(connection, turn)
    assert run is not None
    return run


async def _created(connection: AsyncConnection, turn: NewTurn) -> Run:
    run = await lock_owned(connection, turn.run_id, Scope.of_user(turn.tenant_id, turn.user_id))
    assert run is not None, "this transaction created it"
    return run


async def _store_history(
    connection: AsyncConnection, run: Run, turn: NewTurn, history: Sequence[HistoryMessage]
) -> None:
    await check_fits(connection, run, [*history, HistoryMessage(role="user", content=turn.content)])
    await store_history(connection, run, history, at=turn.at)
